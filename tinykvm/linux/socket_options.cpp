// Options of host sockets. The list allows only options that affect nothing but the socket itself.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "tinykvm/linux/handlers.hpp"
#include "tinykvm/linux/socket_address.hpp"

namespace tinykvm {

namespace {

struct Option {
    int level, name;
    bool settable;
};

constexpr Option kOptions[] = {
    {SOL_SOCKET, SO_TYPE, false},
    {SOL_SOCKET, SO_DOMAIN, false},
    {SOL_SOCKET, SO_PROTOCOL, false},
    {SOL_SOCKET, SO_ERROR, false},
    {SOL_SOCKET, SO_ACCEPTCONN, false},
    {SOL_SOCKET, SO_REUSEADDR, true},
    {SOL_SOCKET, SO_REUSEPORT, true},
    {SOL_SOCKET, SO_KEEPALIVE, true},
    {SOL_SOCKET, SO_BROADCAST, true},
    {SOL_SOCKET, SO_OOBINLINE, true},
    {SOL_SOCKET, SO_DONTROUTE, true},
    {SOL_SOCKET, SO_SNDBUF, true},
    {SOL_SOCKET, SO_RCVBUF, true},
    {SOL_SOCKET, SO_RCVLOWAT, true},
    {SOL_SOCKET, SO_LINGER, true},
    // The guest kernel implements timeouts. These have no effect on the host, which only stores them.
    {SOL_SOCKET, SO_RCVTIMEO, true},
    {SOL_SOCKET, SO_SNDTIMEO, true},
    {IPPROTO_TCP, TCP_NODELAY, true},
    {IPPROTO_TCP, TCP_MAXSEG, true},
    {IPPROTO_TCP, TCP_CORK, true},
    {IPPROTO_TCP, TCP_KEEPIDLE, true},
    {IPPROTO_TCP, TCP_KEEPINTVL, true},
    {IPPROTO_TCP, TCP_KEEPCNT, true},
    {IPPROTO_TCP, TCP_SYNCNT, true},
    {IPPROTO_TCP, TCP_QUICKACK, true},
    {IPPROTO_TCP, TCP_USER_TIMEOUT, true},
    {IPPROTO_TCP, TCP_NOTSENT_LOWAT, true},
    {IPPROTO_TCP, TCP_INFO, false},
    {IPPROTO_IP, IP_TOS, true},
    {IPPROTO_IP, IP_TTL, true},
    {IPPROTO_IP, IP_MTU_DISCOVER, true},
    {IPPROTO_IP, IP_RECVERR, true},
    {IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, true},
    {IPPROTO_IP, IP_MULTICAST_TTL, true},
    {IPPROTO_IP, IP_MULTICAST_LOOP, true},
    {IPPROTO_IPV6, IPV6_V6ONLY, true},
    {IPPROTO_IPV6, IPV6_UNICAST_HOPS, true},
    {IPPROTO_IPV6, IPV6_MTU_DISCOVER, true},
    {IPPROTO_IPV6, IPV6_RECVERR, true},
    {IPPROTO_IPV6, IPV6_TCLASS, true},
};

// The longest value is struct tcp_info.
constexpr std::int32_t kMaxValue = 512;

const Option* find_option(int level, int name) {
    const auto* found = std::find_if(std::begin(kOptions), std::end(kOptions),
                                     [&](const Option& o) { return o.level == level && o.name == name; });
    return found == std::end(kOptions) ? nullptr : found;
}

} // namespace

std::int64_t call_getsockopt(CallContext& call, const CallArgs& args) {
    std::int64_t error = 0;
    const Handle* handle = use_socket(call, args.arg[0], error);
    if (!handle)
        return error;
    const int level = int_arg(args.arg[1]), name = int_arg(args.arg[2]);
    if (!find_option(level, name))
        return -ENOPROTOOPT;
    const auto room = call.memory.load<std::int32_t>(address_arg(args.arg[4]));
    if (!room)
        return -EFAULT;
    if (*room < 0)
        return -EINVAL;
    std::array<std::byte, kMaxValue> value{};
    auto bytes = static_cast<socklen_t>(std::min(*room, kMaxValue));
    if (::getsockopt(handle->file->fd(), level, name, value.data(), &bytes) != 0)
        return -errno;
    if (!call.memory.write(address_arg(args.arg[3]), std::span<const std::byte>(value).first(bytes)) ||
        !call.memory.store(address_arg(args.arg[4]), bytes))
        return -EFAULT;
    return 0;
}

std::int64_t call_setsockopt(CallContext& call, const CallArgs& args) {
    std::int64_t error = 0;
    const Handle* handle = use_socket(call, args.arg[0], error);
    if (!handle)
        return error;
    const int level = int_arg(args.arg[1]), name = int_arg(args.arg[2]), length = int_arg(args.arg[4]);
    const Option* option = find_option(level, name);
    if (!option || !option->settable)
        return -ENOPROTOOPT;
    if (length < 0 || length > kMaxValue)
        return -EINVAL;
    std::array<std::byte, kMaxValue> value{};
    if (!call.memory.read(address_arg(args.arg[3]), std::span(value).first(static_cast<std::size_t>(length))))
        return -EFAULT;
    if (level == SOL_SOCKET && name == SO_LINGER && length >= static_cast<int>(sizeof(linger))) {
        linger wanted{};
        std::memcpy(&wanted, value.data(), sizeof wanted);
        // close() waits for the linger time even on a non-blocking socket. Only time 0, which resets, does not wait.
        if (wanted.l_onoff != 0 && wanted.l_linger != 0)
            return 0;
    }
    if (call.handles.is_shared(int_arg(args.arg[0]))) { // other machines share it: only its present value is accepted
        std::array<std::byte, kMaxValue> now{};
        auto bytes = static_cast<socklen_t>(length);
        const bool same = ::getsockopt(handle->file->fd(), level, name, now.data(), &bytes) == 0 && now == value;
        return same ? 0 : -EPERM;
    }
    return result_of(::setsockopt(handle->file->fd(), level, name, value.data(), static_cast<socklen_t>(length)));
}

} // namespace tinykvm
