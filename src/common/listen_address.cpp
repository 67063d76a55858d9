#include "src/common/listen_address.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver {

namespace {

constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}; // RFC 4291, 2.5.5.2

[[noreturn]] void bad(const std::string& key, const std::string& text, const char* why) {
    throw tinykvm::UserError(tinykvm::ExitCode::usage, fmt::format("{} \"{}\": {}", key, tinykvm::brief(text), why));
}

std::array<std::uint8_t, 16> mapped(const in_addr& four) {
    std::array<std::uint8_t, 16> bytes{};
    std::ranges::copy(kMapped, bytes.begin());
    std::memcpy(bytes.data() + kMapped.size(), &four, sizeof four);
    return bytes;
}

} // namespace

ListenAddress ListenAddress::parse(const std::string& key, const std::string& text) {
    constexpr const char* kSyntax = "write ADDRESS:PORT, such as 127.0.0.1:5432 or [::1]:5432";
    if (text.starts_with("unix:"))
        bad(key, text, "a function has no Unix sockets; write ADDRESS:PORT");
    const auto colon = text.rfind(':');
    if (colon == text.npos)
        bad(key, text, kSyntax);
    std::string host = text.substr(0, colon);
    const std::string_view digits = std::string_view(text).substr(colon + 1);
    ListenAddress address;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), address.port);
    if (error != std::errc{} || end != digits.data() + digits.size() || address.port == 0)
        bad(key, text, "the port must be a number from 1 to 65535");
    in_addr four{};
    const bool brackets = host.starts_with('[') && host.ends_with(']');
    if (brackets) {
        if (::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), address.bytes.data()) != 1)
            bad(key, text, kSyntax);
        if (address.is_ipv4())
            bad(key, text, "write an IPv4 address without brackets");
        return address;
    }
    if (host.empty())
        host = "0.0.0.0";
    else if (host == "localhost")
        host = "127.0.0.1";
    if (::inet_pton(AF_INET, host.c_str(), &four) != 1)
        bad(key, text, host.find(':') == host.npos ? kSyntax : "write an IPv6 address in brackets: [::1]:5432");
    address.bytes = mapped(four);
    return address;
}

ListenAddress ListenAddress::of_socket(int fd) {
    sockaddr_storage real{};
    socklen_t size = sizeof real;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&real), &size) < 0)
        tinykvm::throw_errno("getsockname");
    ListenAddress address;
    if (real.ss_family == AF_INET) {
        const auto& in = reinterpret_cast<const sockaddr_in&>(real);
        address.bytes = mapped(in.sin_addr);
        address.port = ntohs(in.sin_port);
    } else if (real.ss_family == AF_INET6) {
        const auto& in6 = reinterpret_cast<const sockaddr_in6&>(real);
        std::memcpy(address.bytes.data(), &in6.sin6_addr, address.bytes.size());
        address.port = ntohs(in6.sin6_port);
    } else {
        throw tinykvm::HostError(EAFNOSUPPORT, "a socket of a TCP function");
    }
    return address;
}

bool ListenAddress::is_ipv4() const { return std::equal(kMapped.begin(), kMapped.end(), bytes.begin()); }

bool ListenAddress::is_any() const {
    const auto first = bytes.begin() + (is_ipv4() ? kMapped.size() : 0);
    return std::all_of(first, bytes.end(), [](std::uint8_t byte) { return byte == 0; });
}

bool ListenAddress::overlaps(const ListenAddress& other) const {
    return port == other.port && is_ipv4() == other.is_ipv4() && (bytes == other.bytes || is_any() || other.is_any());
}

std::string ListenAddress::text() const {
    char out[INET6_ADDRSTRLEN] = "";
    if (is_ipv4()) {
        ::inet_ntop(AF_INET, bytes.data() + kMapped.size(), out, sizeof out);
        return fmt::format("{}:{}", out, port);
    }
    ::inet_ntop(AF_INET6, bytes.data(), out, sizeof out);
    return fmt::format("[{}]:{}", out, port);
}

socklen_t ListenAddress::to(sockaddr_storage& out) const {
    out = {};
    if (is_ipv4()) {
        auto& in = reinterpret_cast<sockaddr_in&>(out);
        in.sin_family = AF_INET;
        in.sin_port = htons(port);
        std::memcpy(&in.sin_addr, bytes.data() + kMapped.size(), sizeof in.sin_addr);
        return sizeof in;
    }
    auto& in6 = reinterpret_cast<sockaddr_in6&>(out);
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(port);
    std::memcpy(&in6.sin6_addr, bytes.data(), bytes.size());
    return sizeof in6;
}

} // namespace kvmserver
