#include "tinykvm/base/error.hpp"

#include <cerrno>

namespace tinykvm {

HostError::HostError(int error, const std::string& operation)
    : std::system_error(error, std::generic_category(), operation) {}

bool is_shortage(int error) {
    return error == ENOMEM || error == EMFILE || error == ENFILE || error == EAGAIN || error == ENOSPC;
}

void throw_errno(const std::string& operation) { throw HostError(errno, operation); }

UserError::UserError(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

} // namespace tinykvm
