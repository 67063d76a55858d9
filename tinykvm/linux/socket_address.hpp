// Addresses that a program names: checked against its permissions before the host sees them.
#pragma once
#include "tinykvm/linux/arguments.hpp"

namespace tinykvm {

// A socket handle that can be used; null with `error` (negative errno) otherwise.
const Handle* use_socket(CallContext& call, std::uint64_t number, std::int64_t& error);

// An address to connect or send to, in a form that the host may use: an AF_UNIX path becomes the name of a
// descriptor, so that what was checked is what is reached.
struct Destination {
    SocketAddress address;
    UniqueFd held; // keeps the name of a Unix socket valid
    std::int64_t error = 0;
};
Destination check_destination(CallContext& call, const char* name, const Handle& socket, SocketAddress address);

} // namespace tinykvm
