// Checks the addresses that a program connects or sends to against its permissions, before the host's kernel uses them.
#pragma once
#include "tinykvm/linux/arguments.hpp"

namespace tinykvm {

// A usable socket handle, or null with `error` set to a negative errno.
const Handle* use_socket(CallContext& call, std::uint64_t number, std::int64_t& error);

// A checked address to connect or send to. An AF_UNIX path is replaced by the /proc name of a descriptor, so that the
// host reaches the socket that was checked.
struct Destination {
    SocketAddress address;
    UniqueFd held; // keeps the /proc name of a Unix socket valid
    std::int64_t error = 0;
};
Destination check_destination(CallContext& call, const char* name, const Handle& socket, SocketAddress address);

} // namespace tinykvm
