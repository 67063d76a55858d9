// What kvmserver's internal processes share (function_process.hpp, examiner_process.hpp).
#pragma once
#include <functional>
#include <string>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::cli {

// The inherited descriptor of that number. Throws UserError.
tinykvm::UniqueFd inherited(const std::string& number);

// Runs `work` and returns its exit code. Prints an exception as one line.
int inner_process(const std::function<int()>& work);

} // namespace kvmserver::cli
