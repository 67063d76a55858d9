// Connections to programs in other machines of the process.
#include <netinet/in.h>
#include <sys/un.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "tinykvm/base/path_text.hpp"
#include "tinykvm/machine/machine.hpp"

namespace tinykvm {

namespace {

// An address that the system might have chosen for the connecting socket.
Neighbours::Address source_of(std::uint32_t family) {
    constexpr std::uint32_t kFirst = 32768, kCount = 28232; // net.ipv4.ip_local_port_range
    static std::atomic<std::uint32_t> next = 0;
    const auto port = htons(static_cast<std::uint16_t>(kFirst + next++ % kCount));
    Neighbours::Address from;
    from.storage.ss_family = static_cast<sa_family_t>(family);
    if (family == AF_INET) {
        auto* in = reinterpret_cast<sockaddr_in*>(&from.storage);
        in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        in->sin_port = port;
        from.bytes = sizeof(*in);
    } else if (family == AF_INET6) {
        auto* in6 = reinterpret_cast<sockaddr_in6*>(&from.storage);
        in6->sin6_addr = in6addr_loopback;
        in6->sin6_port = port;
        from.bytes = sizeof(*in6);
    } else {
        from.bytes = sizeof(sa_family_t);
    }
    return from;
}

// Makes a Unix path absolute. False if it is too long.
bool make_absolute(Neighbours::Address& address, const std::string& cwd) {
    constexpr std::size_t kHead = offsetof(sockaddr_un, sun_path);
    auto* un = reinterpret_cast<sockaddr_un*>(&address.storage);
    const std::size_t given = address.bytes - kHead;
    if (given == 0 || un->sun_path[0] == '\0') // an abstract name
        return true;
    const std::string path = plain_path(join_path(cwd, std::string(un->sun_path, ::strnlen(un->sun_path, given))));
    if (kHead + path.size() >= sizeof(address.storage))
        return false;
    std::memcpy(un->sun_path, path.c_str(), path.size() + 1);
    address.bytes = static_cast<socklen_t>(kHead + path.size() + 1);
    return true;
}

std::span<const std::uint8_t> bytes_of(const Neighbours::Address& address) {
    return {reinterpret_cast<const std::uint8_t*>(&address.storage), address.bytes};
}

} // namespace

std::int64_t Machine::connect_near(const abi::HostCall& call) {
    Neighbours::Address to;
    const std::uint64_t bytes = call.arg[1];
    if (!env_->neighbours || env_->options.trial || bytes < sizeof(sa_family_t) || bytes > sizeof(to.storage) - 1)
        return -ENOENT;
    to.bytes = static_cast<socklen_t>(bytes);
    if (!space_.read(GuestVirt(call.arg[0]),
                     std::as_writable_bytes(std::span(&to.storage, 1)).first(static_cast<std::size_t>(bytes))))
        return -EFAULT;
    if (to.storage.ss_family != call.arg[2])
        return -ENOENT;
    const Handle* cwd = handles_.find(abi::kHandleCwd);
    const bool is_unix = to.storage.ss_family == AF_UNIX;
    if (is_unix && !make_absolute(to, cwd ? cwd->info.path : "/"))
        return -ENOENT;
    const Neighbours::Address from = source_of(to.storage.ss_family);
    UniqueFd stream = env_->neighbours->connect(to, from);
    if (!stream)
        return -errno;
    if (is_unix)
        to.bytes = sizeof(sa_family_t); // abi::Conn has no room for a path
    const auto slot = connections_.open(bytes_of(to), bytes_of(from));
    if (!slot)
        return -EAGAIN;
    host_->connected(*this, *slot, std::move(stream));
    return static_cast<std::int64_t>(*slot);
}

} // namespace tinykvm
