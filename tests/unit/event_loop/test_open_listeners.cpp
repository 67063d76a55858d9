// Where a restored program listens, and where one does whose snapshot is being made.
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "src/event_loop/listeners.hpp"
#include "tests/catch.hpp"
#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/base/error.hpp"

using namespace kvmserver;
using tinykvm::ExitCode;
using tinykvm::ListenerState;
using tinykvm::UserError;

namespace {

ListenerState at(std::uint32_t id, in_addr_t host, std::uint16_t port, std::uint32_t flags = 0) {
    ListenerState state;
    state.id = id;
    state.family = AF_INET;
    state.flags = flags;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(host);
    address.sin_port = htons(port);
    state.address.resize(sizeof address);
    std::memcpy(state.address.data(), &address, sizeof address);
    return state;
}

ListenerState at6(std::uint32_t id, std::uint16_t port, std::uint32_t flags = 0) {
    ListenerState state;
    state.id = id;
    state.family = AF_INET6;
    state.flags = flags;
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    state.address.resize(sizeof address);
    std::memcpy(state.address.data(), &address, sizeof address);
    return state;
}

std::uint16_t port_of(const ListenerState& state) {
    sockaddr_in address{};
    std::memcpy(&address, state.address.data(), sizeof address);
    return ntohs(address.sin_port);
}

} // namespace

TEST_CASE("a program that asks for any port is told which one it got") {
    Listeners listeners;
    ListenerState socket = at(0, INADDR_LOOPBACK, 0);
    REQUIRE(listeners.bind(socket) == 0);
    CHECK(port_of(socket) != 0);
    REQUIRE(listeners.listen(socket, 5) == 0);
    CHECK(listeners.addresses().at(0) == "127.0.0.1:" + std::to_string(port_of(socket)));
}

TEST_CASE("--listen moves the first listener only, and the program is not told") {
    Listeners listeners;
    listeners.override_first(parse_listen_address("127.0.0.1:0"));
    ListenerState first = at(0, INADDR_LOOPBACK, 0), second = at(1, INADDR_LOOPBACK + 1, 0);
    first.address[2] = 0x23; // port 9090, wherever it really is
    first.address[3] = 0x82;
    listeners.open({first, second});
    const auto addresses = listeners.addresses();
    REQUIRE(addresses.size() == 2);
    CHECK(addresses[0] != "127.0.0.1:9090");
    CHECK(addresses[0].find("127.0.0.1:") == 0);
    CHECK(addresses[1].find("127.0.0.2:") == 0);
}

TEST_CASE("an address that another server has is named, with what to do about it") {
    Listeners theirs, ours;
    ListenerState socket = at(0, INADDR_LOOPBACK, 0);
    REQUIRE(theirs.listen(socket, 5) == 0);
    try {
        ours.open({socket});
        FAIL("both listen");
    } catch (const UserError& error) {
        CHECK(error.code() == ExitCode::conflict);
        const std::string said = error.what();
        CHECK(said.find("127.0.0.1:" + std::to_string(port_of(socket))) != said.npos);
        CHECK(said.find("choose another address with --listen") != said.npos);
    }
}

TEST_CASE("accepting from a listener at which nobody is returns at once") {
    Listeners listeners;
    ListenerState socket = at(7, INADDR_LOOPBACK, 0);
    REQUIRE(listeners.listen(socket, 5) == 0);
    const int fd = listeners.all().at(0).fd;
    errno = 0;
    CHECK_FALSE(accept_client(fd, 7).fd);
    CHECK(errno == EAGAIN);
    const tinykvm::UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const SocketAddress where = parse_listen_address("127.0.0.1:" + std::to_string(port_of(socket)));
    REQUIRE(::connect(client.get(), where.get(), where.bytes) == 0);
    const IncomingConnection taken = accept_client(fd, 7);
    REQUIRE(taken.fd);
    CHECK(taken.listener == 7);
    CHECK(to_string(taken.peer.get(), taken.peer.bytes).find("127.0.0.1:") == 0);
}

TEST_CASE("where a snapshot is made nothing listens, but a taken port is refused as Linux would") {
    using tinykvm::abi::kBindReusePort;
    using tinykvm::abi::kBindV6Only;
    const auto second = [](ListenerState first, ListenerState then) {
        Listeners listeners;
        listeners.set_dry(true);
        REQUIRE(listeners.bind(first) == 0);
        REQUIRE(listeners.listen(first, 5) == 0);
        CHECK(listeners.all().empty());
        return listeners.bind(then);
    };
    CHECK(second(at(0, INADDR_LOOPBACK, 80), at(1, INADDR_LOOPBACK, 80)) == -EADDRINUSE);
    CHECK(second(at(0, INADDR_ANY, 80), at(1, INADDR_LOOPBACK, 80)) == -EADDRINUSE);
    CHECK(second(at(0, INADDR_LOOPBACK, 80), at(1, INADDR_ANY, 80)) == -EADDRINUSE);
    CHECK(second(at(0, INADDR_LOOPBACK, 80), at(1, INADDR_LOOPBACK, 81)) == 0);
    CHECK(second(at(0, INADDR_LOOPBACK, 80), at(1, INADDR_LOOPBACK + 1, 80)) == 0);
    CHECK(second(at6(0, 80), at(1, INADDR_LOOPBACK, 80)) == -EADDRINUSE); // [::] takes IPv4 as well
    CHECK(second(at6(0, 80, kBindV6Only), at(1, INADDR_LOOPBACK, 80)) == 0);
    CHECK(second(at(0, INADDR_LOOPBACK, 80, kBindReusePort), at(1, INADDR_LOOPBACK, 80, kBindReusePort)) == 0);
    CHECK(second(at(0, INADDR_LOOPBACK, 80, kBindReusePort), at(1, INADDR_LOOPBACK, 80)) == -EADDRINUSE);
}

TEST_CASE("where a snapshot is made a port is free again once its listener is closed") {
    Listeners listeners;
    listeners.set_dry(true);
    ListenerState first = at(0, INADDR_LOOPBACK, 80), second = at(1, INADDR_LOOPBACK, 80);
    REQUIRE(listeners.listen(first, 5) == 0);
    CHECK(listeners.listen(first, 5) == 0); // the same one
    CHECK(listeners.listen(second, 5) == -EADDRINUSE);
    listeners.close(0);
    CHECK(listeners.listen(second, 5) == 0);
}
