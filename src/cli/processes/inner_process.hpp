// What the processes that kvmserver starts of itself have in common (function_process.hpp, examiner_process.hpp).
#pragma once
#include <functional>
#include <string>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::cli {

// The descriptor that was inherited as that number. Throws UserError.
tinykvm::UniqueFd inherited(const std::string& number);

// The exit code of `work`; what it throws is told in one line.
int inner_process(const std::function<int()>& work);

} // namespace kvmserver::cli
