#include "tinykvm/linux/datagram_socket.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include "tinykvm/linux/handles.hpp"
#include "tinykvm/linux/net_rules.hpp"

namespace tinykvm {
namespace {

// HandleInfo::flags also holds socket options, in these bits.
constexpr std::uint32_t kV6Only = 1u << 30, kReuseAddress = 1u << 28;
struct Switch {
    std::uint32_t flag;
    int option;
};
constexpr Switch kSwitches[] = {
    {1u << 29, SO_BROADCAST}, {kReuseAddress, SO_REUSEADDR}, {1u << 27, SO_REUSEPORT}}; // level SOL_SOCKET

const sockaddr* address_of(const std::vector<std::uint8_t>& bytes) {
    return reinterpret_cast<const sockaddr*>(bytes.data());
}

bool is_on(int fd, int level, int name) {
    int value = 0;
    socklen_t bytes = sizeof(value);
    return ::getsockopt(fd, level, name, &value, &bytes) == 0 && value != 0;
}

} // namespace

bool is_internet_datagram(int family, int type, int protocol) {
    return type == SOCK_DGRAM && (family == AF_INET || family == AF_INET6) &&
           (protocol == 0 || protocol == IPPROTO_UDP);
}

bool names_port(const std::vector<std::uint8_t>& address) {
    const auto named = net_address(address_of(address), static_cast<socklen_t>(address.size()));
    return named && named->port != 0;
}

bool can_be_made_anew(const HandleInfo& info) {
    return info.kind == HandleKind::socket && is_internet_datagram(info.family, info.type, info.protocol) &&
           !names_port(info.bound);
}

bool is_v6_only(int fd) { return is_on(fd, IPPROTO_IPV6, IPV6_V6ONLY); }

void note_settings(int fd, HandleInfo& info) {
    info.flags = (info.flags & ~kV6Only) | (is_v6_only(fd) ? kV6Only : 0);
    for (const auto& [flag, option] : kSwitches)
        info.flags = (info.flags & ~flag) | (is_on(fd, SOL_SOCKET, option) ? flag : 0);
    sockaddr_storage peer;
    socklen_t bytes = sizeof(peer);
    info.peer.clear();
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &bytes) == 0)
        info.peer.assign(reinterpret_cast<const std::uint8_t*>(&peer),
                         reinterpret_cast<const std::uint8_t*>(&peer) + bytes);
}

void share_port(int fd) {
    const int on = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
}

void share_port(HandleInfo& info) { info.flags |= kReuseAddress; }

bool shares_port(int fd) { return is_on(fd, SOL_SOCKET, SO_REUSEADDR) || is_on(fd, SOL_SOCKET, SO_REUSEPORT); }

UniqueFd make_datagram_socket(const HandleInfo& info) {
    UniqueFd fd(::socket(info.family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, info.protocol));
    if (!fd)
        return fd;
    const int only = (info.flags & kV6Only) != 0, on = 1;
    if (info.family == AF_INET6)
        ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only));
    for (const auto& [flag, option] : kSwitches)
        if (info.flags & flag)
            ::setsockopt(fd.get(), SOL_SOCKET, option, &on, sizeof(on));
    if (!info.bound.empty() && ::bind(fd.get(), address_of(info.bound), static_cast<socklen_t>(info.bound.size())) != 0)
        return {};
    if (!info.peer.empty() && ::connect(fd.get(), address_of(info.peer), static_cast<socklen_t>(info.peer.size())) != 0)
        return {};
    return fd;
}

} // namespace tinykvm
