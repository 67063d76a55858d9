#include "tinykvm/linux/listens_at.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tests/catch.hpp"

using tinykvm::listens_at;

namespace {

using SockaddrBytes = std::vector<std::uint8_t>;

template <class T>
SockaddrBytes sockaddr_bytes(const T& address, std::size_t bytes = sizeof(T)) {
    const auto* const first = reinterpret_cast<const std::uint8_t*>(&address);
    return {first, first + bytes};
}

SockaddrBytes ipv4_bytes(const char* ip, std::uint16_t port) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    REQUIRE(::inet_pton(AF_INET, ip, &in.sin_addr) == 1);
    return sockaddr_bytes(in);
}

SockaddrBytes ipv6_bytes(const char* ip, std::uint16_t port) {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(port);
    REQUIRE(::inet_pton(AF_INET6, ip, &in.sin6_addr) == 1);
    return sockaddr_bytes(in);
}

// `more`: bytes after the name.
SockaddrBytes unix_bytes(std::string_view name, std::size_t more = 0) {
    sockaddr_un un{};
    un.sun_family = AF_UNIX;
    std::memcpy(un.sun_path, name.data(), name.size());
    return sockaddr_bytes(un, offsetof(sockaddr_un, sun_path) + name.size() + more);
}

bool is_reached(const SockaddrBytes& to, const SockaddrBytes& own, bool v6_only = false) {
    return listens_at(own, v6_only, reinterpret_cast<const sockaddr*>(to.data()), static_cast<socklen_t>(to.size()));
}

} // namespace

TEST_CASE("which connections reach a socket that listens") {
    CHECK(is_reached(ipv4_bytes("127.0.0.1", 80), ipv4_bytes("127.0.0.1", 80)));
    CHECK_FALSE(is_reached(ipv4_bytes("127.0.0.1", 81), ipv4_bytes("127.0.0.1", 80)));
    CHECK_FALSE(is_reached(ipv4_bytes("127.0.0.2", 80), ipv4_bytes("127.0.0.1", 80)));
    CHECK(is_reached(ipv4_bytes("127.0.0.2", 80), ipv4_bytes("0.0.0.0", 80)));
    CHECK(is_reached(ipv4_bytes("0.0.0.0", 80), ipv4_bytes("0.0.0.0", 80)));
    CHECK_FALSE(is_reached(ipv4_bytes("192.0.2.1", 80), ipv4_bytes("0.0.0.0", 80)));
    CHECK_FALSE(is_reached(ipv6_bytes("::1", 80), ipv4_bytes("0.0.0.0", 80)));
    CHECK(is_reached(ipv6_bytes("::1", 80), ipv6_bytes("::", 80)));
    CHECK(is_reached(ipv4_bytes("127.0.0.1", 80), ipv6_bytes("::", 80)));
    CHECK_FALSE(is_reached(ipv4_bytes("127.0.0.1", 80), ipv6_bytes("::", 80), true));
    CHECK_FALSE(is_reached(ipv6_bytes("2001:db8::1", 80), ipv6_bytes("::", 80)));
    CHECK(is_reached(ipv6_bytes("2001:db8::1", 80), ipv6_bytes("2001:db8::1", 80)));
}

TEST_CASE("which connections reach a Unix socket that listens") {
    using namespace std::string_view_literals;
    CHECK(is_reached(unix_bytes("/run/a"), unix_bytes("/run/a", 1)));
    CHECK(is_reached(unix_bytes("/run/a", 20), unix_bytes("/run/a")));
    CHECK_FALSE(is_reached(unix_bytes("/run/ab"), unix_bytes("/run/a")));
    CHECK(is_reached(unix_bytes("\0a"sv), unix_bytes("\0a"sv)));
    CHECK_FALSE(is_reached(unix_bytes("\0a\0"sv), unix_bytes("\0a"sv))); // each byte of an abstract name counts
    CHECK_FALSE(is_reached(unix_bytes("a"), unix_bytes("\0a"sv)));
    CHECK_FALSE(is_reached(unix_bytes(""), unix_bytes(""))); // a socket without a name
    CHECK_FALSE(is_reached(ipv4_bytes("127.0.0.1", 80), unix_bytes("/run/a")));
    CHECK_FALSE(is_reached(unix_bytes("/run/a"), ipv4_bytes("127.0.0.1", 80)));
}

TEST_CASE("what is no address reaches nothing") {
    const SockaddrBytes whole = ipv4_bytes("127.0.0.1", 80);
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
        const SockaddrBytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
        CHECK_FALSE(listens_at(part, false, reinterpret_cast<const sockaddr*>(whole.data()), sizeof(sockaddr_in)));
        CHECK_FALSE(is_reached(part, whole));
    }
}
