// How `serve` starts the process of a function: this binary with words that no person types.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "src/runner/function_worker.hpp"

namespace kvmserver::cli {

// kFunctionProcess TITLE CONTROL JAIL AHEAD [with-parent]: the number of a descriptor (worker_messages.hpp), the jail's
// mode and FunctionOptions::ahead_bytes; it is killed when the thread that started it ends.
inline constexpr const char* kFunctionProcess = "--function-process";
inline bool is_function_process(const std::vector<std::string>& words) {
    return !words.empty() && words[0] == kFunctionProcess;
}

// Returns the exit code; errors become one line on stderr. `title`: TITLE where the kernel has it, to be
// replaced by the name of what is served.
int function_process(const std::vector<std::string>& words, std::span<char> title,
                     const std::function<int(FunctionOptions)>& action);

} // namespace kvmserver::cli
