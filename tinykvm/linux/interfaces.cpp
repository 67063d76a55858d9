#include "tinykvm/linux/interfaces.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "tinykvm/base/unique_fd.hpp"
#include "tinykvm/linux/policy.hpp"

namespace tinykvm {

namespace {

bool has_ipv6() { return static_cast<bool>(UniqueFd(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0))); }

// As it is in a new network namespace once it is up.
Interface loopback() {
    Interface lo;
    lo.index = 1;
    lo.name = "lo";
    lo.flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING | 0x10000 /*IFF_LOWER_UP*/;
    lo.type = ARPHRD_LOOPBACK;
    lo.mtu = 65536;
    InterfaceAddress four;
    four.family = AF_INET;
    four.prefix = 8;
    four.scope = RT_SCOPE_HOST;
    four.ip = {127, 0, 0, 1};
    lo.addresses.push_back(four);
    if (has_ipv6()) {
        InterfaceAddress six;
        six.family = AF_INET6;
        six.prefix = 128;
        six.scope = RT_SCOPE_HOST;
        six.ip[15] = 1;
        lo.addresses.push_back(six);
    }
    return lo;
}

std::uint8_t prefix_of(const std::uint8_t* mask, std::size_t bytes) {
    unsigned bits = 0;
    for (std::size_t i = 0; i < bytes; ++i)
        bits += static_cast<unsigned>(std::popcount(mask[i]));
    return static_cast<std::uint8_t>(bits);
}

std::uint8_t scope_of(const InterfaceAddress& a) {
    in6_addr six{};
    std::memcpy(&six, a.ip.data(), sizeof(six));
    if (a.family == AF_INET)
        return a.ip[0] == 127 ? RT_SCOPE_HOST : a.ip[0] == 169 && a.ip[1] == 254 ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE;
    return IN6_IS_ADDR_LOOPBACK(&six) ? RT_SCOPE_HOST : IN6_IS_ADDR_LINKLOCAL(&six) ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE;
}

// The bytes of the address in a sockaddr_in or sockaddr_in6.
const std::uint8_t* ip_of(const sockaddr* address) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(address);
    return bytes +
           (address->sa_family == AF_INET ? offsetof(sockaddr_in, sin_addr) : offsetof(sockaddr_in6, sin6_addr));
}

void add_address(Interface& to, const ifaddrs& item) {
    InterfaceAddress a;
    a.family = static_cast<std::uint8_t>(item.ifa_addr->sa_family);
    std::memcpy(a.ip.data(), ip_of(item.ifa_addr), a.bytes());
    if (item.ifa_netmask)
        a.prefix = prefix_of(ip_of(item.ifa_netmask), a.bytes());
    if (a.family == AF_INET && (item.ifa_flags & IFF_BROADCAST) && item.ifa_broadaddr) {
        std::memcpy(a.broadcast.data(), ip_of(item.ifa_broadaddr), a.bytes());
        a.has_broadcast = true;
    }
    a.scope = scope_of(a);
    to.addresses.push_back(a);
}

void add_link(Interface& to, const ifaddrs& item, int socket) {
    const auto* link = reinterpret_cast<const sockaddr_ll*>(item.ifa_addr);
    to.type = link->sll_hatype;
    std::copy_n(link->sll_addr, std::min<std::size_t>(link->sll_halen, to.hardware.size()), to.hardware.begin());
    if (to.type == ARPHRD_ETHER)
        to.hardware_broadcast.fill(0xff);
    ifreq request{};
    std::strncpy(request.ifr_name, to.name.c_str(), IFNAMSIZ - 1);
    to.mtu = ::ioctl(socket, SIOCGIFMTU, &request) == 0 ? static_cast<std::uint32_t>(request.ifr_mtu) : 1500;
}

std::vector<Interface> all() {
    std::vector<Interface> out;
    ifaddrs* list = nullptr;
    const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket || ::getifaddrs(&list) != 0)
        return out;
    for (const ifaddrs* item = list; item; item = item->ifa_next) {
        if (!item->ifa_addr)
            continue;
        auto found = std::find_if(out.begin(), out.end(), [&](const Interface& i) { return i.name == item->ifa_name; });
        if (found == out.end()) {
            Interface fresh;
            fresh.name = item->ifa_name;
            fresh.index = ::if_nametoindex(item->ifa_name);
            fresh.flags = item->ifa_flags;
            if (fresh.index == 0)
                continue; // a labelled address (alias), or an interface that was just removed
            found = out.insert(out.end(), std::move(fresh));
        }
        const int family = item->ifa_addr->sa_family;
        if (family == AF_PACKET)
            add_link(*found, *item, socket.get());
        else if (family == AF_INET || family == AF_INET6)
            add_address(*found, *item);
    }
    ::freeifaddrs(list);
    std::sort(out.begin(), out.end(), [](const Interface& a, const Interface& b) { return a.index < b.index; });
    return out;
}

} // namespace

std::vector<Interface> visible_interfaces(const Policy& policy) {
    // A program that may not use the network sees no interface of the host, and a loopback even if none is up.
    std::vector<Interface> out;
    if (policy.may_bind_ephemeral() && !policy.permissions().shared_network)
        out = all();
    if (out.empty())
        out.push_back(loopback());
    return out;
}

} // namespace tinykvm
