// `kvmserver serve`: requests come in at one address, each goes to the function whose route it matches.
#pragma once
#include <filesystem>
#include <string>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

struct ServeOptions {
    std::filesystem::path store;
    tinykvm::UniqueFd listening; // a TCP or Unix socket that listens
    std::string address;         // of it, for people
    std::string certificate, key; // PEM files; "": plain HTTP
    unsigned machines = 1;        // request machines of a function's process
    double idle_seconds = 60;     // after which a function's process ends; a manifest's scale.idle goes before it
};

// Until SIGTERM or SIGINT; then requests in flight are finished. Returns the exit code; throws UserError, HostError.
int serve(ServeOptions options);

} // namespace kvmserver::daemon
