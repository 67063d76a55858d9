// The exit code of a command that the API refused, or would have.
#pragma once
#include <string_view>

#include "tinykvm/base/error.hpp"

namespace kvmserver::ops {

// `code`: the problem's, "bad-snapshot"; may be "".
tinykvm::ExitCode exit_code_of_reply(unsigned http_status, std::string_view code);

} // namespace kvmserver::ops
