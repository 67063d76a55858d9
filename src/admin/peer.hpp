// Identifies the client of the API's Unix socket.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string_view>

namespace kvmserver::admin {

// The user of the process that connected, from the front's description ("unix:UID:PID"). Returns nothing if it is not a
// Unix socket, or if the process does not deserve its user's rights: it runs a machine whose guest may have taken it
// over, or it cannot be inspected.
std::optional<uid_t> trusted_user(std::string_view client);

} // namespace kvmserver::admin
