#include <netinet/in.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "src/event_loop/listeners.hpp"
#include "tests/catch.hpp"
#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/linux/policy.hpp"

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

TEST_CASE("a Unix socket that is taken to connect keeps its name as long as it is open") {
    std::string folder = "/var/tmp/kvmserver-listeners-XXXXXX"; // not /tmp, which is the machine's own
    REQUIRE(::mkdtemp(folder.data()));
    const std::string path = std::filesystem::canonical(folder).string() + "/name";
    tinykvm::Permissions permissions;
    permissions.all = true;
    const tinykvm::Policy policy(permissions, {});
    Listeners listeners;
    listeners.set_policy(&policy);
    tinykvm::ListenerState state;
    state.id = 3;
    state.family = AF_UNIX;
    state.address = {AF_UNIX, 0};
    state.address.insert(state.address.end(), path.begin(), path.end());
    state.address.push_back(0);
    state.flags = tinykvm::abi::kBindMessages | std::uint64_t{0755} << tinykvm::abi::kBindModeShift;
    REQUIRE(listeners.bind(state) == 0);
    {
        const tinykvm::BoundSocket taken = listeners.take_bound(3);
        REQUIRE(taken.fd);
        CHECK(std::filesystem::is_socket(path));
        int type = 0;
        socklen_t bytes = sizeof type;
        CHECK(::getsockopt(taken.fd.get(), SOL_SOCKET, SO_TYPE, &type, &bytes) == 0);
        CHECK(type == SOCK_SEQPACKET);
    }
    CHECK_FALSE(std::filesystem::exists(path));
    CHECK_FALSE(listeners.take_bound(3).fd);
    std::filesystem::remove_all(folder);
}
