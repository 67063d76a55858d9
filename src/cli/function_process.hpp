// How `serve` starts the process of a function: this binary with words that no person types.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/runner/function_worker.hpp"

namespace kvmserver::cli {

// kFunctionProcess NAME CONTROL PIECES [AFTER-RESTORE VALUES]: the third and fourth are numbers of descriptors.
inline constexpr const char* kFunctionProcess = "--function-process";
inline bool is_function_process(const std::vector<std::string>& words) { return !words.empty() && words[0] == kFunctionProcess; }

// Returns the exit code; errors become one line on stderr.
int function_process(const std::vector<std::string>& words, const std::function<int(FunctionOptions)>& action);

} // namespace kvmserver::cli
