// Which connections reach a socket that listens.
#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <span>

namespace tinykvm {

// Whether a connection to `to` reaches the socket bound to `own` (a sockaddr). One that is bound to all addresses is
// reached at those of this host's loopback interface only; a `v6_only` one (IPV6_V6ONLY, ipv6(7)) by IPv6 alone. Unix
// sockets are reached by the same path or abstract name.
bool listens_at(std::span<const std::uint8_t> own, bool v6_only, const sockaddr* to, socklen_t bytes);

} // namespace tinykvm
