// Calls the API of a daemon.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "src/cli/platform/connection.hpp"
#include "src/remote/client.hpp"

namespace kvmserver::cli::platform {

// The server of --remote, with its token from KVMSERVER_TOKEN, --token-file or `login`. Nothing without --remote.
std::optional<remote::Server> chosen_server(const Invocation& invocation);
// The server of that name, or with that URL, with the token of `login`. Throws UserError.
remote::Server server_named(const std::string& name_or_url);
// `store`: of a daemon on this host; "" if it is not known.
std::unique_ptr<Connection> connect_there(remote::Server server, const std::filesystem::path& store, bool quiet,
                                          Context& context);

} // namespace kvmserver::cli::platform
