// Which connections reach a socket that listens.
#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <span>

#include "tinykvm/linux/net_address.hpp"

namespace tinykvm {

// Whether a connection to `to` reaches the socket bound to `own` (a sockaddr). One that is bound to all addresses is
// reached at those of this host's loopback interface only; a `v6_only` one (IPV6_V6ONLY, ipv6(7)) by IPv6 alone. Unix
// sockets are reached by the same path or abstract name.
bool listens_at(std::span<const std::uint8_t> own, bool v6_only, const sockaddr* to, socklen_t bytes);

// Whether two sockets cannot be bound to these addresses at once, unless they share the port: each as in listens_at().
bool bound_alike(const NetAddress& a, bool a_v6_only, const NetAddress& b, bool b_v6_only);

} // namespace tinykvm
