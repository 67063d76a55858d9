// Maps a refusal by the API to a command's exit code.
#pragma once
#include <string_view>

#include "tinykvm/base/error.hpp"

namespace kvmserver::ops {

// `code`: the problem's code, such as "bad-snapshot"; may be "".
tinykvm::ExitCode exit_code_of_reply(unsigned http_status, std::string_view code);

} // namespace kvmserver::ops
