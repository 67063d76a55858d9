// Addresses of Unix sockets, however long their paths are: sun_path holds only 107 characters.
#pragma once
#include <string>

#include <sys/un.h>

namespace kvmserver {

// Of the socket `name` in the folder that is open as `folder`, which must stay open while the address is used. Throws
// UserError (usage) if the name alone is too long.
sockaddr_un unix_address(int folder, const std::string& name);

} // namespace kvmserver
