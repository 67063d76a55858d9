#include "src/daemon/function_version.hpp"

#include <fmt/format.h>

namespace kvmserver::daemon {

std::string FunctionVersion::state_description() const {
    return fmt::format("{}\n{}\n{}\n{}\n{}{}", facts_.function, facts_.created, facts_.version, facts_.machine,
                       facts_.given->values.environment, facts_.given->values.body);
}

} // namespace kvmserver::daemon
