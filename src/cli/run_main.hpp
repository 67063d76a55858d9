// The entry point of kvmserver.
#pragma once
#include <functional>

#include "src/runner/function_worker.hpp"
#include "src/setup/options.hpp"

namespace kvmserver::cli {

// The work of processes that run machines. Tests wrap it.
struct Actions {
    std::function<int(FunctionOptions)> function = kvmserver::run_function;
    std::function<int(const Options&)> run = kvmserver::run_program, snaprun = kvmserver::run_snapshot;
};

int run_main(int argc, char** argv, const Actions& actions = {});

} // namespace kvmserver::cli
