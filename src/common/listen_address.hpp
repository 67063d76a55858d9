// An address that a TCP function listens on, as its manifest writes it.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvmserver {

struct ListenAddress {
    std::array<std::uint8_t, 16> bytes{}; // IPv4 is IPv4-mapped
    std::uint16_t port = 0;
    auto operator<=>(const ListenAddress&) const = default;

    // Parses "127.0.0.1:5432", "[::1]:5432", "localhost:5432", ":5432" (0.0.0.0). Throws UserError (usage) that begins
    // with `key`.
    static ListenAddress parse(const std::string& key, const std::string& text);
    // Of a bound socket. Throws HostError, also if it is no TCP socket.
    static ListenAddress of_socket(int fd);

    std::string text() const; // "127.0.0.1:5432", "[::1]:5432"
    bool is_ipv4() const;
    bool is_any() const; // 0.0.0.0 or ::
    // Whether two sockets cannot listen on both: the same port, and the same address or one that includes it.
    bool overlaps(const ListenAddress& other) const;
    socklen_t to(sockaddr_storage& out) const;
};

} // namespace kvmserver
