// The command lines of function processes and of their template (src/cli/processes/function_process.hpp).
#pragma once
#include <string>

#include "src/jail/spawn.hpp"

namespace kvmserver::daemon {

// The first word. Both are equally long, as a process that is forked has the template's words to overwrite, for `ps`.
inline constexpr const char* kFunctionProcess = "--function-process";
inline constexpr const char* kFunctionTemplate = "--function-forking";
inline constexpr int kFunctionControl = 3; // descriptor number in the process

// This binary with that word, a place for a title, and what of our environment the C library reads.
jail::Program function_words(const char* first, jail::Mode mode, const std::string& executable = "/proc/self/exe");

} // namespace kvmserver::daemon
