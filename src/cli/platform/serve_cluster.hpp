// What `serve` has besides its store's folder: chunks in a bucket (--chunks), and the index of a cluster (--cluster).
#pragma once
#include <string>
#include <string_view>

#include "src/cli/command.hpp"
#include "src/daemon/daemon.hpp"

namespace kvmserver::cli {

// The last value of an option of `serve`.
std::string text_of(const Invocation& invocation, std::string_view name, const std::string& fallback = "");

// Files that only the daemon may read; "": not given.
struct SecretFiles {
    std::string chunks, cluster, cluster_key;
};
SecretFiles secret_files(const Invocation& invocation, const Context& context);

// Sets options.chunks and options.cluster, and makes the store a part of the cluster if it is new there. Throws
// UserError for the options, and if bucket or index are not this store's; prints a line if they are not reached but
// what the disk has can be served.
void open_shared(const Invocation& invocation, const SecretFiles& files, daemon::ServeOptions& options);

} // namespace kvmserver::cli
