// Calls the API of a daemon.
#pragma once
#include <filesystem>
#include <optional>

#include "src/cli/platform/connection.hpp"
#include "src/remote/client.hpp"

namespace kvmserver::cli::platform {

// The server of --remote, with its token from KVMSERVER_TOKEN, --token-file or `login`. Nothing without --remote.
std::optional<remote::Server> chosen_server(const Invocation& invocation);
// `store`: of a daemon on this host; "" if it is not known.
std::unique_ptr<Connection> connect_there(remote::Server server, const std::filesystem::path& store, bool quiet,
                                          Context& context);

} // namespace kvmserver::cli::platform
