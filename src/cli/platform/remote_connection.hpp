// The API of a daemon.
#pragma once
#include <optional>

#include "src/cli/platform/connection.hpp"
#include "src/remote/client.hpp"

namespace kvmserver::cli::platform {

// Of --remote, with its token: KVMSERVER_TOKEN, --token-file, or what `login` kept; nothing when --remote is
// not given.
std::optional<remote::Server> chosen_server(const Invocation& invocation);
std::unique_ptr<Connection> connect_there(remote::Server server, bool quiet, Context& context);

} // namespace kvmserver::cli::platform
