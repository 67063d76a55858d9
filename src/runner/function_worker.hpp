// The process of a function: restores one version and serves the requests that the daemon hands to it
// (src/protocol).
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/jail/walls.hpp"
#include "src/setup/options.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver {

struct FunctionOptions {
    tinykvm::UniqueFd control; // to the daemon: worker_messages.hpp
    Options machine;           // what snaprun would be told
    jail::Mode jail = jail::Mode::automatic;
    std::uint64_t ahead_bytes = 0; // of memory that is made ready for an image before it is known which
    // Called once it is known what is served: "hello v4".
    std::function<void(const std::string& name)> on_name;
    // Called by the thread of each machine before that serves, with the environment that the function was given: for
    // tests, which run here what somebody could who has broken out of a machine.
    std::function<void(const std::string& name, const std::vector<std::string>& environment)> on_machine;
};

// Gets ready, waits to be told what to serve, and does until the daemon closes `control`. Returns the exit
// code; throws UserError, HostError.
int run_function(FunctionOptions options);

} // namespace kvmserver
