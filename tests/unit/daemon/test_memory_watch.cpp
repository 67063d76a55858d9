#include <fcntl.h>
#include <poll.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "src/daemon/memory_watch.hpp"
#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"

using kvmserver::daemon::MemoryWatch;
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kMiB = 1 << 20;

struct Host {
    Host() {
        put("proc/meminfo", "MemTotal:        4194304 kB\nMemFree:          100000 kB\nMemAvailable:    2097152 kB\n");
        put("proc/self/cgroup", "0::/\n");
        fs::create_directories(folder / "groups");
    }
    void put(const std::string& path, const std::string& text) const {
        fs::create_directories((folder / path.c_str()).parent_path());
        std::ofstream(folder / path.c_str()) << text;
    }
    MemoryWatch watch(std::optional<std::uint64_t> reserve = {}) const {
        return MemoryWatch(reserve, {folder / "proc", folder / "groups"});
    }

    kvmserver::store::test::TempFolder folder;
};

} // namespace

TEST_CASE("memory: what the host has, and a twentieth of it in reserve") {
    const Host host;
    const MemoryWatch watch = host.watch();
    CHECK(watch.available() == 2048 * kMiB);
    CHECK(watch.reserve() == 4096 * kMiB / 20);
    CHECK(watch.stall_fd() < 0);
    CHECK(host.watch(7).reserve() == 7);
    host.put("proc/meminfo", "MemTotal: 104857600 kB\nMemAvailable: 1024 kB\n");
    CHECK(watch.available() == kMiB);
    CHECK(host.watch().reserve() == MemoryWatch::kMostReserve);
    host.put("proc/meminfo", "nonsense");
    CHECK_FALSE(watch.available());
}

TEST_CASE("memory: a control group with a limit, also one above the daemon's") {
    const Host host;
    host.put("proc/self/cgroup", "12:cpu:/other\n0::/pods/one/kvmserver-daemon\n");
    host.put("groups/pods/memory.max", "max\n");
    host.put("groups/pods/one/memory.max", "1073741824\n");
    host.put("groups/pods/one/memory.current", "1000000000\n");
    host.put("groups/pods/one/memory.stat", "anon 5\ninactive_file 400000000\nactive_file 7\n");
    host.put("groups/pods/one/kvmserver-daemon/memory.max", "max\n");
    const MemoryWatch watch = host.watch();
    CHECK(watch.available() == 1073741824 - 600000000);
    CHECK(watch.reserve() == 1073741824 / 20);
    host.put("groups/pods/one/memory.current", "2000000000\n"); // it was lowered
    CHECK(watch.available() == 0);
}

TEST_CASE("memory: this host's own, and whether its programs wait") {
    const MemoryWatch watch({});
    CHECK(watch.available().value_or(0) > kMiB);
    CHECK(MemoryWatch(0).stall_fd() < 0); // never short
    if (!tinykvm::UniqueFd(::open("/proc/pressure/memory", O_RDWR | O_CLOEXEC))) {
        WARN("skipped: this kernel does not tell whether programs wait for memory (PSI)");
        return;
    }
    REQUIRE(watch.stall_fd() >= 0);
    pollfd told{watch.stall_fd(), POLLPRI, 0};
    REQUIRE(::poll(&told, 1, 0) >= 0);
    CHECK((told.revents & POLLERR) == 0); // which poll() says of a file without a trigger
}
