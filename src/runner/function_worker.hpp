// The process of a function: restores one version and serves the requests that the daemon hands to it
// (src/link).
#pragma once
#include <string>

#include "src/runner/options.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver {

struct FunctionOptions {
    std::string name;          // "hello v4", for messages
    tinykvm::UniqueFd control; // to the daemon: machine_link.hpp
    tinykvm::UniqueFd pieces;  // the list of the snapshot's pieces: byte_source.hpp
    std::string after_restore; // path of the request that is made once, before all others; "": none
    tinykvm::UniqueFd values;  // that request's body
    Options machine;           // what snaprun would be told
};

// Until the daemon closes `control`. Returns the exit code; throws UserError, HostError.
int run_function(FunctionOptions options);

} // namespace kvmserver
