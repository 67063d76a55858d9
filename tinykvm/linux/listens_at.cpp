#include "tinykvm/linux/listens_at.hpp"

#include <sys/un.h>

#include <cstddef>
#include <string_view>

namespace tinykvm {

namespace {

// A path without what follows its end, an abstract name with its first NUL; "": neither.
std::string_view unix_name(const sockaddr* address, std::size_t bytes) {
    constexpr std::size_t kHead = offsetof(sockaddr_un, sun_path);
    if (bytes <= kHead || address->sa_family != AF_UNIX)
        return {};
    const std::string_view name(reinterpret_cast<const char*>(address) + kHead, bytes - kHead);
    return name[0] == '\0' ? name : name.substr(0, name.find('\0'));
}

} // namespace

bool bound_alike(const NetAddress& a, bool a_v6_only, const NetAddress& b, bool b_v6_only) {
    const auto covers = [](const NetAddress& one, bool v6_only, const NetAddress& other) {
        return one.is_any() && (one.is_ipv4() == other.is_ipv4() || (!one.is_ipv4() && !v6_only));
    };
    return a.port == b.port && (a.bytes == b.bytes || covers(a, a_v6_only, b) || covers(b, b_v6_only, a));
}

bool listens_at(std::span<const std::uint8_t> own, bool v6_only, const sockaddr* to, socklen_t bytes) {
    if (own.size() < sizeof(sa_family_t) || bytes < sizeof(sa_family_t))
        return false;
    const auto* const at = reinterpret_cast<const sockaddr*>(own.data());
    const auto wanted = net_address(to, bytes), mine = net_address(at, static_cast<socklen_t>(own.size()));
    if (wanted && mine) {
        if (wanted->port != mine->port)
            return false;
        const bool any = mine->is_any() && (wanted->is_any() || wanted->is_loopback());
        return wanted->bytes == mine->bytes ||
               (any && (wanted->is_ipv4() == mine->is_ipv4() || (!mine->is_ipv4() && !v6_only)));
    }
    const std::string_view name = unix_name(to, bytes);
    return !name.empty() && name == unix_name(at, own.size());
}

} // namespace tinykvm
