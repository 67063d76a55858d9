#include "tinykvm/linux/socket_address.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/base/path_text.hpp"

namespace tinykvm {

namespace {

constexpr std::size_t kUnixHeader = offsetof(sockaddr_un, sun_path);

void check_unix(CallContext& call, const char* name, Destination& destination) {
    sockaddr_un address{};
    std::memcpy(&address, &destination.address.storage,
                std::min<std::size_t>(destination.address.length, sizeof address));
    const std::size_t bytes = destination.address.length > kUnixHeader ? destination.address.length - kUnixHeader : 0;
    if (bytes == 0 || bytes > sizeof address.sun_path) {
        destination.error = -EINVAL;
        return;
    }
    if (address.sun_path[0] == '\0') {
        const std::string abstract = "@" + std::string(address.sun_path + 1, bytes - 1);
        if (!call.policy.may_connect_abstract(abstract))
            destination.error = refuse(call, name, abstract, EACCES, "only --allow-all reaches abstract sockets");
        return;
    }
    std::string path(address.sun_path, ::strnlen(address.sun_path, bytes));
    if (path.front() != '/') {
        const Handle* cwd = use_handle(call, abi::kHandleCwd, destination.error);
        if (!cwd)
            return;
        path = join_path(cwd->info.path, path);
    }
    OpenedPath opened = call.policy.open(path, O_PATH, 0, call.self);
    if (opened.error == kOwnPath)
        opened.error = ENOENT; // the machine's own folders hold no sockets of the host
    if (opened.error == 0)
        // As on Linux, connecting needs write permission.
        opened.error = call.policy.check(opened.path, kWrite, opened.refused);
    if (opened.error != 0) {
        destination.error = refuse(call, name, path, opened.error, opened.refused);
        return;
    }
    sockaddr_un held{};
    held.sun_family = AF_UNIX;
    const std::string at = host_path_of(opened.fd.get());
    std::memcpy(held.sun_path, at.c_str(), at.size() + 1);
    std::memcpy(&destination.address.storage, &held, sizeof held);
    destination.address.length = static_cast<socklen_t>(kUnixHeader + at.size() + 1);
    destination.held = std::move(opened.fd);
}

} // namespace

const Handle* use_socket(CallContext& call, std::uint64_t number, std::int64_t& error) {
    const Handle* handle = use_handle(call, number, error);
    if (handle && handle->info.kind != HandleKind::socket) {
        error = -ENOTSOCK;
        return nullptr;
    }
    return handle;
}

Destination check_destination(CallContext& call, const char* name, const Handle& socket, SocketAddress address) {
    Destination destination;
    destination.address = address;
    destination.error = address.error;
    if (destination.error != 0)
        return destination;
    if (address.length < sizeof(sa_family_t)) {
        destination.error = -EINVAL;
        return destination;
    }
    switch (address.storage.ss_family) {
    case AF_UNIX:
        if (socket.info.family != AF_UNIX)
            destination.error = -EAFNOSUPPORT;
        else
            check_unix(call, name, destination);
        break;
    case AF_INET:
    case AF_INET6:
        if (socket.info.family == AF_UNIX)
            destination.error = -EINVAL;
        else if (const auto target = net_address(address.get(), address.length); !target)
            destination.error = -EINVAL;
        else if (!call.policy.may_connect(address.get(), address.length))
            destination.error =
                refuse(call, name, target->text(), EACCES,
                       Policy::net_flag("--allow-connect", address.get(), address.length) + " would allow it");
        break;
    default:
        // Includes AF_UNSPEC, which Linux treats as AF_INET when sending a UDP datagram.
        destination.error = -EAFNOSUPPORT;
    }
    return destination;
}

} // namespace tinykvm
