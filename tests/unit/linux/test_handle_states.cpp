#include <netinet/in.h>
#include <sys/socket.h>

#include <fstream>
#include <iterator>

#include "tests/unit/linux/world.hpp"
#include "tinykvm/base/error.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

namespace {

struct Restored {
    explicit Restored(World& world, const std::vector<HandleState>& states)
        : table(HandleTable::restore(states, *world.policy, 64, warnings)) {}
    std::vector<std::string> warnings;
    HandleTable table;
};

std::string read_all(int fd) {
    char buffer[64];
    const ssize_t n = ::pread(fd, buffer, sizeof buffer, 0);
    return std::string(buffer, n > 0 ? static_cast<std::size_t>(n) : 0);
}

} // namespace

TEST_CASE("handles survive as plain values") {
    World world;
    CHECK(world.open(world.tmp / "open/file.txt", O_RDONLY) == 4);
    CHECK(world.open(world.tmp / "rw/log", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND) == 5);
    CHECK(world.write(5, "line\n", 0) == 5);
    CHECK(world.open("/proc/meminfo", O_RDONLY) == 6);
    CHECK(world.open("/dev/urandom", O_RDONLY) == 7);
    CHECK(world.call(SYS_memfd_create, world.text("m"), 0, World::kReply) == 8);
    CHECK(world.write(8, "memory", 10) == 6);
    CHECK(world.call(SYS_ftruncate, 8, 1000) == 0);
    CHECK(world.call(SYS_socket, 2, 1, 0) == 9);
    CHECK(world.open(world.tmp / "open/sub", O_RDONLY | O_DIRECTORY) == 10);
    world.handles->close(2);

    const auto states = world.handles->states();
    CHECK(states.size() == 10);
    Restored restored(world, states);
    REQUIRE(restored.warnings.size() == 1); // the socket
    CHECK(restored.warnings[0].find("handle 9 socket") == 0);
    CHECK(restored.table.states() == states);
    CHECK(restored.table.fd(1) == 1);
    CHECK(restored.table.fd(2) == -1);
    CHECK(restored.table.find(3)->info.path == world.tmp / "open");
    CHECK(read_all(restored.table.fd(4)) == "hello world");
    CHECK(read_file(world.tmp / "rw/log") == "line\n"); // not truncated again
    CHECK((restored.table.find(5)->info.flags & O_APPEND));
    CHECK(read_all(restored.table.fd(6)).find("MemTotal") == 0);
    CHECK(read_all(restored.table.fd(8)) == std::string(10, '\0') + "memory" + std::string(48, '\0'));
    CHECK(restored.table.error(9) == ECONNRESET);
    CHECK(restored.table.error(10) == 0);
    // It is a base: reset brings it back.
    restored.table.close(4);
    restored.table.reset();
    CHECK(read_all(restored.table.fd(4)) == "hello world");
}

TEST_CASE("a file without a name survives with its content") {
    World world;
    REQUIRE(world.open(world.tmp / "rw", O_RDWR | O_TMPFILE, 0600) == 4);
    CHECK(world.write(4, "unnamed", 3) == 7);
    REQUIRE(world.open(world.tmp / "rw", O_WRONLY | O_TMPFILE, 0600) == 5);
    CHECK(world.write(5, "another", 0) == 7);
    auto states = world.handles->states();
    {
        Restored restored(world, states);
        CHECK(restored.warnings.empty());
        CHECK(read_all(restored.table.fd(4)) == std::string(3, '\0') + "unnamed");
        CHECK(read_all(restored.table.fd(5)) == "another");
        CHECK(restored.table.states() == states);
    }
    // One that was too large to be saved is not another, empty one.
    world.handles->set_memfd_limit(0);
    Restored restored(world, world.handles->states());
    CHECK(restored.warnings.size() == 2);
    CHECK(restored.table.error(4) == EIO);
    CHECK(std::distance(fs::directory_iterator(world.tmp / "rw"), fs::directory_iterator()) == 1);
}

TEST_CASE("a deleted file survives with its content, and is not another that has its name now") {
    World world;
    REQUIRE(world.open(world.tmp / "rw/deleted", O_RDWR | O_CREAT | O_EXCL, 0600) == 4);
    CHECK(world.write(4, "mine", 0) == 4);
    fs::remove(world.tmp / "rw/deleted");
    std::ofstream(world.tmp / "rw/deleted") << "another's";
    Restored restored(world, world.handles->states());
    CHECK(restored.warnings.empty());
    CHECK(read_all(restored.table.fd(4)) == "mine");
}

TEST_CASE("a memory file that reaches further than a snapshot holds is told, not saved as another") {
    World world;
    REQUIRE(world.call(SYS_memfd_create, world.text("far"), 0, World::kReply) == 4);
    REQUIRE(world.write(4, "x", std::int64_t{1} << 40) == 1);
    CHECK_THROWS_AS(world.handles->states(), UserError);
    REQUIRE(world.call(SYS_ftruncate, 4, 1000) == 0);
    CHECK(world.handles->states().size() == 5);
}

TEST_CASE("a snapshot opens no sockets that its program could not have opened") {
    World world;
    HandleState state;
    state.number = 4;
    state.kind = HandleKind::socket;
    state.family = AF_INET;
    state.type = SOCK_DGRAM;
    HandleState icmp = state;
    icmp.number = 5;
    icmp.protocol = IPPROTO_ICMP;
    Restored restored(world, {state, icmp});
    CHECK(restored.table.use(4) == 0);
    CHECK(restored.table.use(5) == ECONNRESET);
}

TEST_CASE("a datagram socket that serves keeps its options") {
    Permissions permissions;
    permissions.listen = {{"localhost", 0}};
    World world(permissions);
    REQUIRE(world.call(SYS_socket, AF_INET, SOCK_DGRAM, 0) == 4);
    REQUIRE(world.call(SYS_socket, AF_INET, SOCK_DGRAM, 0) == 5);
    for (const int option : {SO_REUSEADDR, SO_REUSEPORT, SO_BROADCAST})
        REQUIRE(world.call(SYS_setsockopt, 4, SOL_SOCKET, option, world.put(1), 4) == 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (const int handle : {4, 5}) {
        UniqueFd free(::socket(AF_INET, SOCK_DGRAM, 0));
        socklen_t bytes = sizeof address;
        address.sin_port = 0;
        REQUIRE(::bind(free.get(), reinterpret_cast<sockaddr*>(&address), bytes) == 0);
        REQUIRE(::getsockname(free.get(), reinterpret_cast<sockaddr*>(&address), &bytes) == 0);
        free.reset();
        REQUIRE(world.call(SYS_bind, handle, world.put(address), sizeof address) == 0);
    }
    world.handles->freeze(); // as an image is taken
    const auto states = world.handles->states();
    world.handles = std::make_unique<HandleTable>(*world.policy, 64); // the ports are free
    Restored restored(world, states);
    REQUIRE(restored.warnings.empty());
    for (const int option : {SO_REUSEADDR, SO_REUSEPORT, SO_BROADCAST})
        for (const int handle : {4, 5}) {
            int value = -1;
            socklen_t bytes = sizeof value;
            REQUIRE(::getsockopt(restored.table.fd(handle), SOL_SOCKET, option, &value, &bytes) == 0);
            CHECK(value == (handle == 4 ? 1 : 0));
        }
}

TEST_CASE("a missing, changed or forbidden file is lost, and says so") {
    World world;
    for (const char* name : {"gone", "changed", "kept", "forbidden"})
        write_file(world.tmp / "open/" + name, "1");
    CHECK(world.open(world.tmp / "open/gone", O_RDONLY) == 4);
    CHECK(world.open(world.tmp / "open/changed", O_RDONLY) == 5);
    CHECK(world.open(world.tmp / "open/kept", O_RDONLY) == 6);
    CHECK(world.open(world.tmp / "open/forbidden", O_RDONLY) == 7);
    CHECK(world.open(world.tmp / "rw/old.txt", O_RDWR) == 8);
    auto states = world.handles->states();
    fs::remove(world.tmp / "open/gone");
    write_file(world.tmp / "open/changed", "2!");
    write_file(world.tmp / "rw/old.txt", "others may write to it");
    for (HandleState& state : states)
        if (state.number == 7)
            state.path = world.tmp / "secret/key";

    Restored restored(world, states);
    world.handles = std::make_unique<HandleTable>(std::move(restored.table));
    CHECK(restored.warnings.size() == 3);
    std::string text;
    CHECK(world.read(4, 1, 0, text) == -EIO);
    CHECK(world.explained.find("/gone") != std::string::npos);
    CHECK(world.read(5, 1, 0, text) == -EIO);
    CHECK(world.explained.find("not the file that it was") != std::string::npos);
    CHECK(world.read(6, 1, 0, text) == 1);
    CHECK(world.read(7, 1, 0, text) == -EIO);
    CHECK(world.explained.find("--allow-read=") != std::string::npos);
    CHECK(world.read(8, 6, 0, text) == 6);
    CHECK(world.call(SYS_getdents64, 4, World::kData, 1000, 0, World::kReply) == -EIO);
    CHECK(world.call(SYS_fstat, 4, World::kData) == -EIO);
    CHECK(world.handles->private_fd(4) == -EIO);
    CHECK(world.handles->fd(4) == -1);
}

TEST_CASE("a datagram socket is made anew, but not with a peer that is not permitted") {
    World world;
    const sockaddr_in there{
        .sin_family = AF_INET, .sin_port = htons(53), .sin_addr = {htonl(0xcb007101)}, .sin_zero = {}};
    HandleState open, connected, wrong;
    open.kind = HandleKind::socket;
    open.family = AF_INET;
    open.type = SOCK_DGRAM;
    connected = wrong = open;
    open.number = 4;
    connected.number = wrong.number = 5;
    connected.peer.assign(reinterpret_cast<const std::uint8_t*>(&there),
                          reinterpret_cast<const std::uint8_t*>(&there + 1));
    wrong.peer = {1, 2, 3};
    Restored restored(world, {open, connected});
    CHECK(restored.table.states() == std::vector<HandleState>{open, connected});
    REQUIRE(restored.warnings.size() == 1);
    CHECK(restored.warnings[0].find("--allow-connect=203.0.113.1:53") != std::string::npos);
    CHECK(restored.table.use(4) == 0);
    CHECK(restored.table.use(5) == ECONNRESET);
    CHECK_THROWS_AS(Restored(world, {open, wrong}), UserError);
}

TEST_CASE("states that no table can have given are refused") {
    World world;
    const auto refused = [&](const HandleState& bad) {
        std::vector<std::string> warnings;
        HandleState good;
        good.number = 5;
        good.kind = HandleKind::stdio;
        good.path = "/dev/stdin";
        try {
            HandleTable::restore({good, bad}, *world.policy, 64, warnings);
        } catch (const UserError& e) {
            return e.code() == ExitCode::bad_snapshot;
        }
        return false;
    };
    HandleState state;
    state.number = 4;
    state.path = "/x";
    state.kind = HandleKind::file;
    CHECK_FALSE(refused(state)); // lost, not refused
    const auto with = [&](auto change) {
        HandleState changed = state;
        change(changed);
        return refused(changed);
    };
    CHECK(with([](HandleState& s) { s.memory_file = {{0777, 0, 0, 0}}; })); // of what is none
    CHECK(with([](HandleState& s) {
        s.kind = HandleKind::memfd;
        s.memory_file = {{0777, 0, 0, 0}, {0777, 0, 0, 0}};
    }));
    CHECK(with([](HandleState& s) {
        s.kind = HandleKind::memfd;
        s.memory_file = {{0777, 0x40, 0, 0}};
    }));
    CHECK(with([](HandleState& s) { s.number = -1; }));
    CHECK(with([](HandleState& s) { s.number = 0x7fffffff; }));
    CHECK(with([](HandleState& s) { s.number = 5; }));
    CHECK(with([](HandleState& s) { s.path = "relative"; }));
    CHECK(with([](HandleState& s) { s.path = std::string(100000, '/'); }));
    CHECK(with([](HandleState& s) { s.path = std::string("/a\0b", 4); }));
    CHECK(with([](HandleState& s) { s.kind = static_cast<HandleKind>(99); }));
    CHECK(with([](HandleState& s) { s.content = {1}; }));
    CHECK(with([](HandleState& s) { s.kind = HandleKind::stdio; }));
    CHECK(with([](HandleState& s) {
        s.kind = HandleKind::memfd;
        s.content = {1, 2, 3};
        s.identity.size = 2;
    }));
}

TEST_CASE("a snapshot cannot create, truncate or reach by its flags") {
    World world;
    HandleState state;
    state.number = 4;
    state.path = world.tmp / "rw/made";
    state.flags = O_RDWR | O_CREAT | O_TRUNC;
    HandleState truncate = state;
    truncate.number = 5;
    truncate.path = world.tmp / "rw/old.txt";
    Restored restored(world, {state, truncate});
    CHECK_FALSE(fs::exists(world.tmp / "rw/made"));
    CHECK(read_file(world.tmp / "rw/old.txt") == "old");
    CHECK(restored.table.error(4) == EIO);
    CHECK(restored.table.error(5) == 0);
}
