#include <sys/syscall.h>

#include <set>
#include <string>

#include "tests/catch.hpp"
#include "tests/unit/linux/world.hpp"
#include "tinykvm/abi/guest_kernel.hpp"

using namespace tinykvm;

TEST_CASE("every row is found by its number and has the name of that number") {
    std::set<std::string> names;
    std::uint32_t rows = 0;
    for (std::uint32_t nr = 0; nr < 0x2000; ++nr) {
        const CallRow* row = find_call(nr);
        if (!row)
            continue;
        ++rows;
        CHECK(row->nr == nr);
        CHECK(row->handler);
        CHECK(row->unsupported);
        CHECK(std::string(row->name) == call_name(nr));
        CHECK(names.insert(row->name).second);
    }
    CHECK(rows > 60);
    CHECK(find_call(SYS_fork) == nullptr);
    CHECK(find_call(SYS_ptrace) == nullptr);
    CHECK(find_call(SYS_mount) == nullptr);
    CHECK(find_call(0xffffffff) == nullptr);
}

TEST_CASE("names of system calls") {
    CHECK(std::string(call_name(SYS_read)) == "read");
    CHECK(std::string(call_name(SYS_futex_waitv)) == "futex_waitv");
    CHECK(std::string(call_name(452)) == "fchmodat2");
    CHECK(std::string(call_name(abi::kCloseHandle)) == "close_handle");
    CHECK(std::string(call_name(abi::kPoll)) == "poll_host");
    CHECK(std::string(call_name(400)) == "?");
    CHECK(std::string(call_name(0xffffffff)) == "?");
}

TEST_CASE("every handler stands every argument") {
    // Not what it answers but that it does, without a crash or a descriptor kept.
    test::World world;
    CHECK(world.open("file.txt", O_RDONLY) == 4);
    CHECK(world.open(world.tmp / "rw/old.txt", O_RDWR) == 5);
    CHECK(world.call(SYS_socket, 2, 1, 0) == 6);
    CHECK(world.open(".", O_RDONLY) == 7);
    world.handles->freeze();
    std::uint64_t state = 88172645463325252ull; // xorshift64
    const auto next = [&] {
        state ^= state << 13;
        state ^= state >> 7;
        return state ^= state << 17;
    };
    const std::uint64_t interesting[] = {0,
                                         1,
                                         3,
                                         4,
                                         5,
                                         6,
                                         7,
                                         8,
                                         ~0ull,
                                         ~0ull - 99,
                                         1ull << 63,
                                         INT64_MAX,
                                         1u << 31,
                                         0xffffffff,
                                         4095,
                                         4096,
                                         0x7ffff000,
                                         test::World::kData,
                                         test::World::kDataEnd - 1,
                                         test::World::kHole,
                                         test::World::kReadOnly,
                                         test::World::kHole - 1,
                                         test::World::kText,
                                         0xffffff9c /* AT_FDCWD */};
    const auto call_all = [&] {
        for (std::uint32_t nr = 0; nr < 0x2000; ++nr) {
            if (!find_call(nr))
                continue;
            for (int round = 0; round < 300; ++round) {
                std::uint64_t a[6];
                for (std::uint64_t& value : a)
                    value = interesting[next() % std::size(interesting)];
                world.text(round % 3 == 0 ? world.tmp / "rw/f" : round % 3 == 1 ? "file.txt" : "../secret/key");
                // What moves real data into stdout or waits for it is of no use here.
                if (a[0] == 1 || a[0] == 0 || a[0] == 2)
                    a[0] = 4;
                const std::int64_t result = world.call(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
                const bool sane = result >= 0 || result > -4096;
                if (!sane)
                    FAIL(call_name(nr) << " answered " << result);
                if (round % 20 == 0)
                    world.handles->reset();
            }
            world.handles->reset();
        }
    };
    call_all(); // descriptors that the process makes at their first use and keeps
    const std::size_t before = test::open_fds();
    call_all();
    CHECK(test::open_fds() == before);
    CHECK(test::read_file(world.tmp / "secret/key") == "SECRET");
    CHECK(test::read_file(world.tmp / "open/file.txt") == "hello world");
}
