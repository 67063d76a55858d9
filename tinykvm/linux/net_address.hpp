// Internet addresses.
#pragma once
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace tinykvm {

// An internet address and port. IPv4 addresses are stored IPv4-mapped.
struct NetAddress {
    std::array<std::uint8_t, 16> bytes{};
    std::uint16_t port = 0;
    bool is_ipv4() const;
    bool is_any() const;      // 0.0.0.0 or ::
    bool is_loopback() const; // 127.0.0.0/8 or ::1
    // "1.2.3.4:80", "[::1]:80"
    std::string text() const;
};

// The address, if it is a complete AF_INET or AF_INET6 one.
std::optional<NetAddress> net_address(const sockaddr* address, socklen_t length);

} // namespace tinykvm
