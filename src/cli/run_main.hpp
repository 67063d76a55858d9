// The whole of kvmserver.
#pragma once
#include <functional>

#include "src/runner/function_worker.hpp"
#include "src/setup/options.hpp"

namespace kvmserver::cli {

// What processes that run machines do; tests put something around it.
struct Actions {
    std::function<int(FunctionOptions)> function = kvmserver::run_function;
    std::function<int(const Options&)> run = kvmserver::run_program, snaprun = kvmserver::run_snapshot;
};

int run_main(int argc, char** argv, const Actions& actions = {});

} // namespace kvmserver::cli
