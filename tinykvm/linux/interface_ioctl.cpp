// The ioctls on sockets that query network interfaces (netdevice(7)). Read-only.
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tinykvm/linux/arguments.hpp"
#include "tinykvm/linux/handlers.hpp"
#include "tinykvm/linux/interfaces.hpp"
#include "tinykvm/linux/policy.hpp"

namespace tinykvm {

namespace {

sockaddr in_address(const std::uint8_t* ip) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    std::memcpy(&address.sin_addr, ip, sizeof(address.sin_addr));
    sockaddr out;
    std::memcpy(&out, &address, sizeof(out));
    return out;
}

const InterfaceAddress* first_ipv4(const Interface& i) {
    const auto found = std::find_if(i.addresses.begin(), i.addresses.end(),
                                    [](const InterfaceAddress& a) { return a.family == AF_INET; });
    return found == i.addresses.end() ? nullptr : &*found;
}

// SIOCGIFCONF: lists all IPv4 addresses. struct ifconf holds a length and the address of the entries, or 0 to query the
// length.
std::int64_t list_addresses(CallContext& call, GuestVirt at, const std::vector<Interface>& interfaces) {
    struct Conf {
        std::int32_t length, pad;
        std::uint64_t to;
    };
    auto conf = call.memory.load<Conf>(at);
    if (!conf)
        return -EFAULT;
    std::vector<ifreq> entries;
    for (const Interface& i : interfaces)
        for (const InterfaceAddress& a : i.addresses)
            if (a.family == AF_INET) {
                ifreq entry{};
                std::strncpy(entry.ifr_name, i.name.c_str(), IFNAMSIZ - 1);
                entry.ifr_addr = in_address(a.ip.data());
                entries.push_back(entry);
            }
    if (conf->to != 0) {
        const std::size_t fit = conf->length < 0 ? 0 : static_cast<std::size_t>(conf->length) / sizeof(ifreq);
        entries.resize(std::min(entries.size(), fit));
        if (!call.memory.write(GuestVirt(conf->to), std::as_bytes(std::span(entries))))
            return -EFAULT;
    }
    conf->length = static_cast<std::int32_t>(entries.size() * sizeof(ifreq));
    return call.memory.store(at, *conf) ? 0 : -EFAULT;
}

std::int64_t address_of(const Interface& i, unsigned request, ifreq& entry) {
    const InterfaceAddress* a = first_ipv4(i);
    if (!a)
        return -EADDRNOTAVAIL;
    if (request == SIOCGIFNETMASK) {
        std::uint8_t mask[4]{};
        for (unsigned bit = 0; bit < a->prefix; ++bit)
            mask[bit / 8] = static_cast<std::uint8_t>(mask[bit / 8] | 0x80u >> bit % 8);
        entry.ifr_addr = in_address(mask);
    } else {
        entry.ifr_addr = in_address(request == SIOCGIFBRDADDR ? a->broadcast.data() : a->ip.data());
    }
    return 0;
}

std::int64_t ask(const Interface& i, unsigned request, ifreq& entry) {
    switch (request) {
    case SIOCGIFFLAGS: entry.ifr_flags = static_cast<short>(i.flags & 0xffff); return 0;
    case SIOCGIFINDEX: entry.ifr_ifindex = static_cast<int>(i.index); return 0;
    case SIOCGIFMTU: entry.ifr_mtu = static_cast<int>(i.mtu); return 0;
    case SIOCGIFMETRIC: entry.ifr_metric = 0; return 0;
    case SIOCGIFTXQLEN: entry.ifr_qlen = static_cast<int>(i.queue); return 0;
    case SIOCGIFHWADDR:
        entry.ifr_hwaddr = {};
        entry.ifr_hwaddr.sa_family = i.type;
        std::memcpy(entry.ifr_hwaddr.sa_data, i.hardware.data(), i.hardware.size());
        return 0;
    case SIOCGIFADDR:
    case SIOCGIFDSTADDR:
    case SIOCGIFBRDADDR:
    case SIOCGIFNETMASK: return address_of(i, request, entry);
    default: return -EOPNOTSUPP;
    }
}

// Whether the ioctl changes something, which needs CAP_NET_ADMIN.
bool changes(unsigned request) {
    switch (request) {
    case SIOCSIFLINK:
    case SIOCSIFFLAGS:
    case SIOCSIFADDR:
    case SIOCSIFDSTADDR:
    case SIOCSIFBRDADDR:
    case SIOCSIFNETMASK:
    case SIOCSIFMETRIC:
    case SIOCSIFMEM:
    case SIOCSIFMTU:
    case SIOCSIFNAME:
    case SIOCSIFHWADDR:
    case SIOCADDMULTI:
    case SIOCDELMULTI:
    case SIOCSIFPFLAGS:
    case SIOCSIFHWBROADCAST:
    case SIOCSIFTXQLEN:
    case SIOCADDRT:
    case SIOCDELRT: return true;
    default: return false;
    }
}

} // namespace

// Host call kInterface: (request, address).
std::int64_t call_interface_ioctl(CallContext& call, const CallArgs& args) {
    const auto request = static_cast<unsigned>(args.arg[0]);
    const GuestVirt at = address_arg(args.arg[1]);
    if (changes(request))
        return -EPERM;
    if (request == SIOCGIFCONF)
        return list_addresses(call, at, visible_interfaces(call.policy));
    auto entry = call.memory.load<ifreq>(at);
    if (!entry)
        return -EFAULT;
    entry->ifr_name[IFNAMSIZ - 1] = '\0';
    const std::vector<Interface> interfaces = visible_interfaces(call.policy);
    const bool by_index = request == SIOCGIFNAME;
    const auto found = std::find_if(interfaces.begin(), interfaces.end(), [&](const Interface& i) {
        return by_index ? static_cast<int>(i.index) == entry->ifr_ifindex : i.name == entry->ifr_name;
    });
    if (found == interfaces.end())
        return -ENODEV;
    std::int64_t result = 0;
    if (by_index)
        std::strncpy(entry->ifr_name, found->name.c_str(), IFNAMSIZ - 1);
    else
        result = ask(*found, request, *entry);
    if (result < 0)
        return result;
    return call.memory.store(at, *entry) ? 0 : -EFAULT;
}

} // namespace tinykvm
