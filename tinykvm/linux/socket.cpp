// Outbound and datagram sockets. They never block on the host: EAGAIN and EINPROGRESS go to the guest kernel, which
// waits. Listening sockets belong to the runner and are not made here.
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/base/path_text.hpp"
#include "tinykvm/linux/datagram_socket.hpp"
#include "tinykvm/linux/handlers.hpp"
#include "tinykvm/linux/socket_address.hpp"

namespace tinykvm {

namespace {

// 0 or an errno. Netlink and packet sockets would show the host's network, and raw sockets would allow forged packets.
int supported(int family, int type, int protocol) {
    if (family != AF_INET && family != AF_INET6 && family != AF_UNIX)
        return EAFNOSUPPORT;
    if (type == SOCK_RAW)
        return EPERM;
    const bool stream_or_datagram = type == SOCK_STREAM || type == SOCK_DGRAM;
    if (family == AF_UNIX) {
        if (!stream_or_datagram && type != SOCK_SEQPACKET)
            return ESOCKTNOSUPPORT;
        return protocol == 0 || protocol == PF_UNIX ? 0 : EPROTONOSUPPORT;
    }
    if (!stream_or_datagram)
        return ESOCKTNOSUPPORT;
    return protocol == 0 || protocol == (type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP) ? 0 : EPROTONOSUPPORT;
}

using NameOf = int (*)(int, sockaddr*, socklen_t*);

std::int64_t name_of_socket(CallContext& call, const CallArgs& args, NameOf name_of) {
    std::int64_t error = 0;
    const Handle* handle = use_socket(call, args.arg[0], error);
    if (!handle)
        return error;
    SocketAddress address;
    address.length = sizeof address.storage;
    if (name_of(handle->file->fd(), address.get(), &address.length) != 0)
        return -errno;
    return store_address(call.memory, address, address_arg(args.arg[1]), address_arg(args.arg[2]));
}

// Checks an address to bind to: port 0, which lets the host choose, or an address that may be listened on.
std::int64_t check_source(CallContext& call, const SocketAddress& address) {
    const auto local = net_address(address.get(), address.length);
    if (!local)
        return address.length < sizeof(sa_family_t) ? -EINVAL : -EAFNOSUPPORT;
    if (call.policy.may_listen(address.get(), address.length) || (local->port == 0 && call.policy.may_bind_ephemeral()))
        return 0;
    return refuse(call, "bind", local->text(), EACCES,
                  Policy::net_flag("--allow-listen", address.get(), address.length) + " would allow it");
}

// Binds to a path. The handle owns the name, so that a reset removes it.
std::int64_t bind_path(CallContext& call, std::int32_t number, const Handle& handle, const SocketAddress& address,
                       mode_t mode) {
    const char* text = address.get()->sa_data;
    std::string path(text, ::strnlen(text, address.length - sizeof(sa_family_t)));
    std::int64_t error = 0;
    if (path.front() != '/') {
        const Handle* cwd = use_handle(call, abi::kHandleCwd, error);
        if (!cwd)
            return error;
        path = join_path(cwd->info.path, path);
    }
    OpenedPlace place = call.policy.socket_place(path, call.self);
    if (place.error != 0)
        return refuse(call, "bind", path, place.error, place.refused);
    UnixName name;
    if (const int failed =
            name.bind(handle.file->fd(), std::move(place.folder), place.name, mode, UnixName::Dead::stays);
        failed != 0)
        return failed;
    call.handles.set_name(number, std::move(name));
    return 0;
}

} // namespace

std::int64_t call_socket(CallContext& call, const CallArgs& args) {
    constexpr int kTypeFlags = SOCK_NONBLOCK | SOCK_CLOEXEC;
    const int family = int_arg(args.arg[0]), type = int_arg(args.arg[1]) & ~kTypeFlags, protocol = int_arg(args.arg[2]);
    if (const int error = supported(family, type, protocol))
        return -error;
    UniqueFd fd(::socket(family, type | kTypeFlags, protocol));
    if (!fd)
        return -errno;
    HandleInfo info;
    info.kind = HandleKind::socket;
    info.flags = O_RDWR;
    info.family = family;
    info.type = type;
    info.protocol = protocol;
    return call.handles.add(std::move(fd), std::move(info));
}

std::int64_t call_connect(CallContext& call, const CallArgs& args) {
    std::int64_t error = 0;
    const Handle* handle = use_socket(call, args.arg[0], error);
    if (!handle)
        return error;
    const SocketAddress address = load_address(call.memory, address_arg(args.arg[1]), int_arg(args.arg[2]));
    if (address.error != 0)
        return address.error;
    if (call.handles.is_shared(int_arg(args.arg[0])))
        return -EPERM; // this would connect it for other machines too
    // AF_UNSPEC removes the peer, which needs no permission.
    if (address.length >= sizeof(sa_family_t) && address.storage.ss_family == AF_UNSPEC)
        return result_of(::connect(handle->file->fd(), address.get(), address.length));
    const Destination to = check_destination(call, "connect", *handle, address);
    if (to.error != 0)
        return to.error;
    return result_of(::connect(handle->file->fd(), to.address.get(), to.address.length));
}

std::int64_t call_bind(CallContext& call, const CallArgs& args) {
    std::int64_t error = 0;
    const Handle* handle = use_socket(call, args.arg[0], error);
    if (!handle)
        return error;
    const SocketAddress address = load_address(call.memory, address_arg(args.arg[1]), int_arg(args.arg[2]));
    if (address.error != 0)
        return address.error;
    const bool is_unix =
        address.length > sizeof(sa_family_t) && address.storage.ss_family == AF_UNIX && handle->info.family == AF_UNIX;
    if (is_unix && address.get()->sa_data[0] != '\0')
        return bind_path(call, int_arg(args.arg[0]), *handle, address, static_cast<mode_t>(0777 & ~args.arg[3]));
    if (is_unix) {
        if (!call.policy.may_listen(address.get(), address.length))
            return refuse(call, "bind", "an abstract name", EACCES,
                          Policy::net_flag("--allow-listen", address.get(), address.length) + " would allow it");
    } else if (handle->info.family == AF_UNIX) {
        if (address.length != sizeof(sa_family_t) || address.storage.ss_family != AF_UNIX)
            return -EINVAL; // only autobind needs no address
    } else if (const std::int64_t refused = check_source(call, address))
        return refused;
    const int number = int_arg(args.arg[0]);
    if (call.handles.is_shared(number))
        return -EINVAL;
    const auto local = net_address(address.get(), address.length);
    if (local && call.policy.permissions().shared_network) {
        if (local->port != 0 && handle->info.bound.empty() && call.handles.has_other_bound(number, *local) &&
            !shares_port(handle->file->fd()))
            return -EADDRINUSE;
        share_port(handle->file->fd());
    }
    const std::int64_t result = result_of(::bind(handle->file->fd(), address.get(), address.length));
    if (result == 0 && handle->info.type == SOCK_DGRAM && local) {
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(address.get());
        call.handles.set_bound(number, std::vector<std::uint8_t>(bytes, bytes + address.length));
    }
    return result;
}

std::int64_t call_getsockname(CallContext& call, const CallArgs& args) {
    return name_of_socket(call, args,
                          [](int fd, sockaddr* at, socklen_t* room) { return ::getsockname(fd, at, room); });
}

std::int64_t call_getpeername(CallContext& call, const CallArgs& args) {
    return name_of_socket(call, args,
                          [](int fd, sockaddr* at, socklen_t* room) { return ::getpeername(fd, at, room); });
}

std::int64_t call_shutdown(CallContext& call, const CallArgs& args) {
    std::int64_t error = 0;
    const Handle* handle = use_socket(call, args.arg[0], error);
    if (call.handles.is_shared(int_arg(args.arg[0])))
        return -ENOTCONN;
    return handle ? result_of(::shutdown(handle->file->fd(), int_arg(args.arg[1]))) : error;
}

} // namespace tinykvm
