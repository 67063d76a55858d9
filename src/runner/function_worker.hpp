// The process of a function: restores one version and serves the requests that the daemon hands to it
// (src/link).
#pragma once
#include <functional>
#include <string>

#include "src/runner/options.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver {

struct FunctionOptions {
    tinykvm::UniqueFd control;     // to the daemon: machine_link.hpp
    Options machine;               // what snaprun would be told
    std::uint64_t ahead_bytes = 0; // of memory that is made ready for an image before it is known which
    // Called once it is known what is served: "hello v4".
    std::function<void(const std::string& name)> on_name;
};

// Gets ready, waits to be told what to serve, and does until the daemon closes `control`. Returns the exit
// code; throws UserError, HostError.
int run_function(FunctionOptions options);

} // namespace kvmserver
