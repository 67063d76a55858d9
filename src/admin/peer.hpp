// Who is at the other end of the API's Unix socket.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string_view>

namespace kvmserver::admin {

// The user of the process that connected, by what the front says of it ("unix:UID:PID"). Nothing: it is none of a Unix
// socket, or a process that is not to be trusted with its user's rights: it runs a machine, and what is in the machine
// may have overcome it, or it cannot be looked at.
std::optional<uid_t> trusted_user(std::string_view client);

} // namespace kvmserver::admin
