#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "src/runner/listeners.hpp"
#include "tests/catch.hpp"

using namespace kvmserver;

namespace {

tinykvm::ListenerState loopback(std::uint32_t id) {
    tinykvm::ListenerState state;
    state.id = id;
    state.family = AF_INET;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    state.address.resize(sizeof address);
    std::memcpy(state.address.data(), &address, sizeof address);
    return state;
}

std::size_t open_fds() {
    std::size_t n = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
        ++n;
    return n;
}

} // namespace

TEST_CASE("a machine has one host socket a number, however often it binds") {
    Listeners listeners;
    const std::size_t before = open_fds();
    for (int n = 0; n < 50; ++n) {
        tinykvm::ListenerState socket = loopback(3);
        REQUIRE(listeners.bind(socket) == 0);
    }
    CHECK(open_fds() == before + 1);
    for (int n = 0; n < 50; ++n) {
        tinykvm::ListenerState socket = loopback(3);
        REQUIRE(listeners.listen(socket, 5) == 0);
    }
    CHECK(open_fds() == before + 1);
    CHECK(listeners.all().size() == 1);
    tinykvm::ListenerState other = loopback(4);
    REQUIRE(listeners.bind(other) == 0);
    CHECK(open_fds() == before + 2);
    listeners.close(3);
    listeners.close(4);
    CHECK(open_fds() == before);
}
