// The whole of kvmserver.
#pragma once
#include <functional>

#include "src/runner/function_worker.hpp"

namespace kvmserver::cli {

// `run_function`: what the process of a function does (kvmserver::run_function).
int run_main(int argc, char** argv, const std::function<int(FunctionOptions)>& run_function);

} // namespace kvmserver::cli
