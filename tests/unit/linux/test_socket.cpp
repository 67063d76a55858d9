#include <arpa/inet.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "tests/unit/linux/world.hpp"
#include "tinykvm/abi/guest_kernel.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

namespace {

// Of the loopback, with a port of the host's choice.
struct Listener {
    explicit Listener(int type) : fd(::socket(AF_INET, type, 0)) {
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof address;
        REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
        REQUIRE(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
        if (type == SOCK_STREAM)
            REQUIRE(::listen(fd.get(), 5) == 0);
    }
    UniqueFd fd;
    sockaddr_in address{};
};

Permissions may_connect() {
    Permissions permissions;
    permissions.connect = {{"localhost", 0}};
    return permissions;
}

constexpr std::uint64_t kMessage = World::kData + 512, kIov = World::kData + 1024, kName = World::kData + 2048,
                        kBuffer = World::kData + 8192;

std::int64_t connect(World& world, std::int64_t handle, const sockaddr_in& address) {
    return world.call(SYS_connect, handle, world.put(address), sizeof address);
}

bool wait_for(World& world, std::int32_t handle, short events) {
    pollfd item{world.handles->fd(handle), events, 0};
    return ::poll(&item, 1, 5000) == 1;
}

std::uint64_t message(World& world, std::uint64_t buffer, std::uint64_t bytes, std::uint64_t name = 0,
                      std::uint32_t name_bytes = 0, std::uint32_t flags = 0) {
    world.put(GuestIovec{buffer, bytes}, kIov - World::kData);
    return world.put(abi::SocketMessage{kIov, 1, name, name_bytes, flags}, kMessage - World::kData);
}

std::int64_t send(World& world, std::int64_t handle, const std::string& text) {
    REQUIRE(world.memory.write(GuestVirt(kBuffer), std::as_bytes(std::span(text))));
    return world.call(SYS_sendmsg, handle, message(world, kBuffer, text.size()));
}

} // namespace

TEST_CASE("sockets of a few kinds") {
    World world;
    CHECK(world.call(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) == 4);
    CHECK((::fcntl(world.handles->fd(4), F_GETFL) & O_NONBLOCK));
    CHECK(world.handles->find(4)->info.kind == HandleKind::socket);
    CHECK(world.call(SYS_socket, AF_INET6, SOCK_DGRAM, IPPROTO_UDP) == 5);
    CHECK(world.call(SYS_socket, AF_UNIX, SOCK_SEQPACKET, 0) == 6);
    CHECK(world.call(SYS_socket, AF_INET, SOCK_RAW, IPPROTO_ICMP) == -EPERM);
    CHECK(world.call(SYS_socket, AF_NETLINK, SOCK_RAW, 0) == -EAFNOSUPPORT);
    CHECK(world.call(SYS_socket, AF_PACKET, SOCK_DGRAM, 0) == -EAFNOSUPPORT);
    CHECK(world.call(SYS_socket, AF_VSOCK, SOCK_STREAM, 0) == -EAFNOSUPPORT);
    CHECK(world.call(SYS_socket, AF_INET, SOCK_STREAM, 262 /* IPPROTO_MPTCP */) == -EPROTONOSUPPORT);
    CHECK(world.call(SYS_socket, AF_INET, SOCK_DGRAM, IPPROTO_ICMP) == -EPROTONOSUPPORT);
    CHECK(world.call(SYS_socket, -1, -1, -1) == -EAFNOSUPPORT);
    CHECK(world.call(SYS_socket, AF_INET, 77, 0) == -ESOCKTNOSUPPORT);
}

TEST_CASE("a connection: connect, send, receive, names, shutdown") {
    World world(may_connect());
    Listener listener(SOCK_STREAM);
    CHECK(world.call(SYS_socket, AF_INET, SOCK_STREAM, 0) == 4);
    const std::int64_t result = connect(world, 4, listener.address);
    CHECK((result == 0 || result == -EINPROGRESS));
    CHECK(wait_for(world, 4, POLLOUT));
    world.put(std::int32_t(4), 100);
    CHECK(world.call(SYS_getsockopt, 4, SOL_SOCKET, SO_ERROR, World::kData, World::kData + 100) == 0);
    CHECK(world.get<int>(World::kData) == 0);
    const UniqueFd peer(::accept(listener.fd.get(), nullptr, nullptr));

    CHECK(world.call(SYS_recvmsg, 4, message(world, kBuffer, 10)) == -EAGAIN);
    CHECK(send(world, 4, "ping") == 4);
    char buffer[10];
    CHECK(::recv(peer.get(), buffer, sizeof buffer, 0) == 4);
    CHECK(::send(peer.get(), "pong!", 5, 0) == 5);
    CHECK(wait_for(world, 4, POLLIN));
    CHECK(world.call(SYS_recvmsg, 4, message(world, kBuffer, 10, 0, 0, MSG_PEEK)) == 5);
    CHECK(world.call(SYS_recvmsg, 4, message(world, kBuffer, 10)) == 5);
    CHECK(world.bytes(kBuffer, 5) == "pong!");

    world.put(std::int32_t(128), 100);
    CHECK(world.call(SYS_getpeername, 4, World::kData, World::kData + 100) == 0);
    CHECK(world.get<sockaddr_in>(World::kData).sin_port == listener.address.sin_port);
    CHECK(world.get<std::int32_t>(World::kData + 100) == sizeof(sockaddr_in));
    world.put(std::int32_t(2), 100);
    CHECK(world.call(SYS_getsockname, 4, World::kData, World::kData + 100) == 0); // cut, and told so
    CHECK(world.get<std::int32_t>(World::kData + 100) == sizeof(sockaddr_in));
    world.put(std::int32_t(-1), 100);
    CHECK(world.call(SYS_getsockname, 4, World::kData, World::kData + 100) == -EINVAL);
    CHECK(world.call(SYS_getsockname, 4, World::kData, World::kHole) == -EFAULT);
    world.put(std::int32_t(16), 100);
    CHECK(world.call(SYS_getsockname, 4, World::kHole, World::kData + 100) == -EFAULT);
    CHECK(world.call(SYS_getsockname, 3, World::kData, World::kData + 100) == -ENOTSOCK);

    CHECK(world.call(SYS_shutdown, 4, SHUT_WR) == 0);
    CHECK(::recv(peer.get(), buffer, sizeof buffer, 0) == 0);
    CHECK(world.call(SYS_shutdown, 4, 9) == -EINVAL);
    CHECK(world.call(SYS_shutdown, -1, 0) == -EBADF);
    CHECK(send(world, 4, "x") == -EPIPE);                                                   // an errno, not a signal
    CHECK(world.call(SYS_preadv, 4, world.put(GuestIovec{kBuffer, 10}), 1, -1) == -EAGAIN); // a stream like others
}

TEST_CASE("connections that are not permitted") {
    World world;
    Listener listener(SOCK_STREAM);
    CHECK(world.call(SYS_socket, AF_INET, SOCK_STREAM, 0) == 4);
    CHECK(connect(world, 4, listener.address) == -EACCES);
    CHECK(world.explained == "connect \"127.0.0.1:" + std::to_string(ntohs(listener.address.sin_port)) +
                                 "\": not permitted; --allow-connect=127.0.0.1:" +
                                 std::to_string(ntohs(listener.address.sin_port)) + " would allow it");
    pollfd waiting{listener.fd.get(), POLLIN, 0};
    CHECK(::poll(&waiting, 1, 20) == 0);
    // In IPv6 clothes.
    CHECK(world.call(SYS_socket, AF_INET6, SOCK_STREAM, 0) == 5);
    sockaddr_in6 mapped{};
    mapped.sin6_family = AF_INET6;
    mapped.sin6_port = listener.address.sin_port;
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr);
    CHECK(world.call(SYS_connect, 5, world.put(mapped), sizeof mapped) == -EACCES);
}

TEST_CASE("hostile addresses") {
    World world(may_connect());
    Listener listener(SOCK_STREAM);
    CHECK(world.call(SYS_socket, AF_INET, SOCK_STREAM, 0) == 4);
    const std::uint64_t at = world.put(listener.address);
    for (int length = 0; length < 16; ++length)
        CHECK(world.call(SYS_connect, 4, at, length) == -EINVAL);
    CHECK(world.call(SYS_connect, 4, at, 129) == -EINVAL);
    CHECK(world.call(SYS_connect, 4, at, -1) == -EINVAL);
    CHECK(world.call(SYS_connect, 4, World::kHole, 16) == -EFAULT);
    CHECK(world.call(SYS_connect, 4, World::kDataEnd - 8, 16) == -EFAULT);
    CHECK(world.call(SYS_connect, 3, at, 16) == -ENOTSOCK);
    CHECK(world.call(SYS_connect, 77, at, 16) == -EBADF);
    sockaddr_in other = listener.address;
    other.sin_family = AF_NETLINK;
    CHECK(connect(world, 4, other) == -EAFNOSUPPORT);
    other.sin_family = AF_UNIX;
    CHECK(connect(world, 4, other) == -EAFNOSUPPORT);
}

TEST_CASE("datagrams are checked one by one") {
    World world(may_connect());
    Listener inside(SOCK_DGRAM);
    CHECK(world.call(SYS_socket, AF_INET, SOCK_DGRAM, 0) == 4);
    const std::string text = "query";
    REQUIRE(world.memory.write(GuestVirt(kBuffer), std::as_bytes(std::span(text))));
    world.put(inside.address, kName - World::kData);
    CHECK(world.call(SYS_sendmsg, 4, message(world, kBuffer, 5, kName, 16)) == 5);
    sockaddr_in from{};
    socklen_t length = sizeof from;
    char buffer[10];
    CHECK(::recvfrom(inside.fd.get(), buffer, sizeof buffer, 0, reinterpret_cast<sockaddr*>(&from), &length) == 5);
    CHECK(::sendto(inside.fd.get(), "answer", 6, 0, reinterpret_cast<sockaddr*>(&from), length) == 6);
    CHECK(wait_for(world, 4, POLLIN));
    CHECK(world.call(SYS_recvmsg, 4, message(world, kBuffer, 4, kName, 128)) == 4); // the rest is cut off
    const auto reply = world.get<abi::SocketMessage>(kMessage);
    CHECK((reply.flags & MSG_TRUNC));
    CHECK(reply.name_bytes == sizeof(sockaddr_in));
    CHECK(world.get<sockaddr_in>(kName).sin_port == inside.address.sin_port);

    sockaddr_in outside = inside.address;
    inet_pton(AF_INET, "127.0.0.2", &outside.sin_addr);
    world.put(outside, kName - World::kData);
    CHECK(world.call(SYS_sendmsg, 4, message(world, kBuffer, 5, kName, 16)) == -EACCES);
    outside.sin_family = AF_UNSPEC; // Linux would take it for AF_INET
    world.put(outside, kName - World::kData);
    CHECK(world.call(SYS_sendmsg, 4, message(world, kBuffer, 5, kName, 16)) == -EAFNOSUPPORT);
    CHECK(world.call(SYS_sendmsg, 4, message(world, kBuffer, 5)) == -EDESTADDRREQ);
}

TEST_CASE("a datagram of more ranges than one call takes") {
    World world(may_connect());
    Listener listener(SOCK_DGRAM);
    CHECK(world.call(SYS_socket, AF_INET, SOCK_DGRAM, 0) == 4);
    CHECK(connect(world, 4, listener.address) == 0);
    // 1024 pieces of which every fourth crosses a page.
    const std::uint64_t iov = World::kData + 0x20000, data = World::kData + 0x40000;
    std::string expected;
    for (std::uint64_t n = 0; n < 1024; ++n) {
        const std::uint64_t at = n % 4 == 0 ? data + (n % 64 + 1) * 4096 - 2 : data + n * 8;
        world.put(GuestIovec{at, 4}, iov - World::kData + n * 16);
    }
    for (std::uint64_t n = 0; n < 1024; ++n) {
        const auto item = world.get<GuestIovec>(iov + n * 16);
        world.put(static_cast<std::uint32_t>(n * 2654435761u), item.base - World::kData);
    }
    for (std::uint64_t n = 0; n < 1024; ++n)
        expected += world.bytes(world.get<GuestIovec>(iov + n * 16).base, 4);
    world.put(abi::SocketMessage{iov, 1024, 0, 0, 0}, kMessage - World::kData);
    CHECK(world.call(SYS_sendmsg, 4, kMessage) == 4096);
    std::string got(5000, '\0');
    CHECK(::recv(listener.fd.get(), got.data(), got.size(), 0) == 4096);
    got.resize(4096);
    CHECK(got == expected);
}

TEST_CASE("hostile messages") {
    World world(may_connect());
    Listener listener(SOCK_DGRAM);
    CHECK(world.call(SYS_socket, AF_INET, SOCK_DGRAM, 0) == 4);
    CHECK(connect(world, 4, listener.address) == 0);
    for (const long nr : {SYS_sendmsg, SYS_recvmsg}) {
        CHECK(world.call(nr, 4, World::kHole) == -EFAULT);
        CHECK(world.call(nr, 4, World::kDataEnd - 8) == -EFAULT);
        CHECK(world.call(nr, 3, kMessage) == -ENOTSOCK);
        CHECK(world.call(nr, -1, kMessage) == -EBADF);
        world.put(abi::SocketMessage{World::kHole, 1, 0, 0, 0}, kMessage - World::kData);
        CHECK(world.call(nr, 4, kMessage) == -EFAULT);
        world.put(abi::SocketMessage{kIov, 1025, 0, 0, 0}, kMessage - World::kData);
        CHECK(world.call(nr, 4, kMessage) == -EINVAL);
        CHECK(world.call(nr, 4, message(world, kBuffer, ~0ull)) == -EINVAL);
        CHECK(world.call(nr, 4, message(world, World::kHole, 5)) == -EFAULT);
        CHECK(world.call(nr, 4, message(world, World::kDataEnd - 3, 5)) == -EFAULT); // whole or not at all
    }
    CHECK(world.call(SYS_sendmsg, 4, message(world, kBuffer, 1 << 30)) == -EMSGSIZE);
    CHECK(world.call(SYS_sendmsg, 4, message(world, kBuffer, 5, World::kHole, 16)) == -EFAULT);
    CHECK(world.call(SYS_sendmsg, 4, message(world, kBuffer, 5, kName, 0xffffffff)) == -EINVAL);
    CHECK(world.call(SYS_sendmsg, 4, message(world, kBuffer, 5, 0, 0, MSG_FASTOPEN)) == -EOPNOTSUPP);
    CHECK(world.call(SYS_recvmsg, 4, message(world, kBuffer, 5, 0, 0, MSG_ERRQUEUE)) == -EAGAIN);
    CHECK(world.call(SYS_recvmsg, 4, message(world, kBuffer, 5, 0, 0, ~static_cast<std::uint32_t>(MSG_ERRQUEUE))) ==
          -EAGAIN); // no MSG_WAITALL on the host
}

TEST_CASE("Unix sockets are reached through the file permissions") {
    World world;
    const auto serve = [](const std::string& path) {
        UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM, 0));
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::strcpy(address.sun_path, path.c_str());
        REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
        REQUIRE(::listen(fd.get(), 5) == 0);
        return fd;
    };
    const auto connect_to = [&](const std::string& path) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, path.data(), path.size());
        const std::int64_t handle = world.call(SYS_socket, AF_UNIX, SOCK_STREAM, 0);
        const std::int64_t result =
            world.call(SYS_connect, handle, world.put(address), offsetof(sockaddr_un, sun_path) + path.size());
        world.handles->close(static_cast<std::int32_t>(handle));
        return result;
    };
    const UniqueFd allowed = serve(world.tmp / "rw/s"), readable = serve(world.tmp / "open/s"),
                   secret = serve(world.tmp / "secret/s");
    fs::create_symlink(world.tmp / "secret/s", world.tmp / "rw/out");
    CHECK(connect_to(world.tmp / "rw/s") == 0);
    CHECK(connect_to("../rw/s") == 0);
    CHECK(connect_to(world.tmp / "open/s") == -EACCES);
    CHECK(connect_to(world.tmp / "secret/s") != 0);
    CHECK(connect_to(world.tmp / "rw/out") != 0);
    CHECK_FALSE(world.explained.empty());
    CHECK(connect_to(world.tmp / "rw/old.txt") == -ECONNREFUSED);
    CHECK(connect_to(std::string("\0abstract", 9)) == -EACCES);
    CHECK(connect_to("") == -EINVAL);
    CHECK(world.call(SYS_socket, AF_UNIX, SOCK_STREAM, 0) == 4);
    sockaddr_un whole{};
    whole.sun_family = AF_UNIX;
    std::memset(whole.sun_path, 'a', sizeof whole.sun_path); // no NUL
    CHECK(world.call(SYS_connect, 4, world.put(whole), sizeof whole) == -ENOENT);
    CHECK(world.call(SYS_connect, 4, world.put(sockaddr_storage{AF_UNIX, {}, 0}), sizeof(sockaddr_storage)) == -EINVAL);
}

TEST_CASE("bind: a source address, not a service") {
    World world(may_connect());
    CHECK(world.call(SYS_socket, AF_INET, SOCK_DGRAM, 0) == 4);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    CHECK(world.call(SYS_bind, 4, world.put(address), sizeof address) == 0);
    CHECK(world.call(SYS_socket, AF_INET, SOCK_DGRAM, 0) == 5);
    address.sin_port = htons(5353);
    CHECK(world.call(SYS_bind, 5, world.put(address), sizeof address) == -EACCES);
    CHECK(world.explained.find("--allow-listen=0.0.0.0:5353") != std::string::npos);
    address.sin_family = AF_UNSPEC;
    CHECK(world.call(SYS_bind, 5, world.put(address), sizeof address) == -EAFNOSUPPORT);
    CHECK(world.call(SYS_bind, 5, World::kHole, sizeof address) == -EFAULT);
    CHECK(world.call(SYS_bind, 5, World::kData, 1000) == -EINVAL);
    CHECK(world.call(SYS_bind, 3, World::kData, 16) == -ENOTSOCK);
    CHECK(world.call(SYS_socket, AF_UNIX, SOCK_DGRAM, 0) == 6);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strcpy(name.sun_path, "x");
    CHECK(world.call(SYS_bind, 6, world.put(name), sizeof name) == -EACCES);
    CHECK(world.call(SYS_bind, 6, world.put(name), 2) == 0); // autobind

    World closed;
    CHECK(closed.call(SYS_socket, AF_INET, SOCK_DGRAM, 0) == 4);
    address.sin_family = AF_INET;
    address.sin_port = 0;
    CHECK(closed.call(SYS_bind, 4, closed.put(address), sizeof address) == -EACCES);
}

TEST_CASE("options: a list of harmless ones") {
    World world;
    CHECK(world.call(SYS_socket, AF_INET, SOCK_STREAM, 0) == 4);
    const auto set = [&](int level, int name, std::int32_t value, std::uint64_t length = 4) {
        return world.call(SYS_setsockopt, 4, level, name, world.put(value), length);
    };
    const auto get = [&](int level, int name, std::int32_t room = 4) {
        world.put(room, 100);
        return world.call(SYS_getsockopt, 4, level, name, World::kData, World::kData + 100);
    };
    CHECK(set(IPPROTO_TCP, TCP_NODELAY, 1) == 0);
    CHECK(get(IPPROTO_TCP, TCP_NODELAY) == 0);
    CHECK(world.get<int>(World::kData) == 1);
    CHECK(set(SOL_SOCKET, SO_KEEPALIVE, 1) == 0);
    CHECK(get(SOL_SOCKET, SO_TYPE) == 0);
    CHECK(world.get<int>(World::kData) == SOCK_STREAM);
    CHECK(set(SOL_SOCKET, SO_TYPE, 1) == -ENOPROTOOPT);
    CHECK(set(SOL_SOCKET, SO_BINDTODEVICE, 0) == -ENOPROTOOPT);
    CHECK(set(SOL_SOCKET, SO_MARK, 1) == -ENOPROTOOPT);
    CHECK(set(SOL_SOCKET, SO_ATTACH_BPF, 1) == -ENOPROTOOPT);
    CHECK(set(IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1) == -ENOPROTOOPT);
    CHECK(set(IPPROTO_TCP, TCP_ULP, 1) == -ENOPROTOOPT);
    CHECK(get(SOL_SOCKET, SO_PEERCRED, 12) == -ENOPROTOOPT);
    CHECK(set(IPPROTO_TCP, TCP_NODELAY, 1, ~0ull) == -EINVAL);
    CHECK(set(IPPROTO_TCP, TCP_NODELAY, 1, 100000) == -EINVAL);
    CHECK(set(IPPROTO_TCP, TCP_NODELAY, 1, 0) == -EINVAL);
    CHECK(world.call(SYS_setsockopt, 4, IPPROTO_TCP, TCP_NODELAY, World::kHole, 4) == -EFAULT);
    CHECK(world.call(SYS_setsockopt, 3, IPPROTO_TCP, TCP_NODELAY, World::kData, 4) == -ENOTSOCK);
    CHECK(get(IPPROTO_TCP, TCP_NODELAY, -1) == -EINVAL);
    CHECK(get(IPPROTO_TCP, TCP_INFO, INT32_MAX) == 0);
    CHECK(world.get<std::int32_t>(World::kData + 100) > 100);
    CHECK(world.call(SYS_getsockopt, 4, SOL_SOCKET, SO_TYPE, World::kHole, world.put(std::int32_t(4), 100)) == -EFAULT);
    CHECK(world.call(SYS_getsockopt, 4, SOL_SOCKET, SO_TYPE, World::kData, World::kHole) == -EFAULT);
    // close() must not wait for a linger time.
    struct linger on {
        1, 30
    };
    CHECK(world.call(SYS_setsockopt, 4, SOL_SOCKET, SO_LINGER, world.put(on), sizeof on) == 0);
    CHECK(get(SOL_SOCKET, SO_LINGER, 8) == 0);
    CHECK(world.get<struct linger>(World::kData).l_onoff == 0);
    on.l_linger = 0;
    CHECK(world.call(SYS_setsockopt, 4, SOL_SOCKET, SO_LINGER, world.put(on), sizeof on) == 0);
    CHECK(get(SOL_SOCKET, SO_LINGER, 8) == 0);
    CHECK(world.get<struct linger>(World::kData).l_onoff == 1);
}
