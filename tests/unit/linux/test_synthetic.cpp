#include "tests/unit/linux/world.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

namespace {

std::string slurp(World& world, const std::string& path) {
    const std::int64_t handle = world.open(path, O_RDONLY);
    if (handle < 0)
        return "error " + std::to_string(-handle);
    std::string text;
    world.read(handle, 60000, 0, text);
    world.handles->close(static_cast<std::int32_t>(handle));
    return text;
}

} // namespace

TEST_CASE("the made-up files tell of the machine, not of the host") {
    World world;
    CHECK(slurp(world, "/proc/self/maps").find("555555554000") == 0);
    CHECK(slurp(world, "/proc/77/maps") == slurp(world, "/proc/self/maps")); // the machine's own pid
    CHECK(slurp(world, "/proc/thread-self/maps") == slurp(world, "/proc/self/maps"));
    CHECK(slurp(world, "/proc/78/maps") == "error 2");
    CHECK(slurp(world, "/proc/self/cmdline") == std::string("file.txt\0-x\0", 12));
    CHECK(slurp(world, "/proc/self/comm") == "file.txt\n");
    CHECK(slurp(world, "/proc/self/status").find("\nPid:\t77\n") != std::string::npos);
    CHECK(slurp(world, "/proc/self/stat").find("77 (file.txt) R ") == 0);
    CHECK(slurp(world, "/proc/meminfo").find("MemTotal:        1048576 kB\n") == 0);
    CHECK(slurp(world, "/proc/cpuinfo").find("processor\t: 1\n") != std::string::npos);
    CHECK(slurp(world, "/proc/cpuinfo").find("processor\t: 2\n") == std::string::npos);
    CHECK(slurp(world, "/proc/stat").find("\ncpu1 ") != std::string::npos);
    CHECK(slurp(world, "/proc/version").find("Linux version 6.1.0-kvmserver ") == 0);
    CHECK(slurp(world, "/proc/sys/kernel/osrelease") == "6.1.0-kvmserver\n");
    CHECK(slurp(world, "/proc/sys/vm/overcommit_memory") == "1\n");
    CHECK(slurp(world, "/sys/devices/system/cpu/online") == "0-1\n");
    CHECK(slurp(world, "/sys/devices/system/cpu/possible") == "0-1\n");
    CHECK(slurp(world, "/proc/self/exe") == "hello world"); // the program
    CHECK(slurp(world, "/proc/self/cgroup") == "0::/\n");
    CHECK(slurp(world, "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size") == "error 2");
    CHECK(slurp(world, "/sys/fs/cgroup/memory.max") == "error 2");
}

TEST_CASE("/proc/self/stat has its 52 fields") {
    World world;
    const std::string text = slurp(world, "/proc/self/stat");
    CHECK(std::count(text.begin(), text.end(), ' ') == 51);
}

TEST_CASE("the made-up files can be looked at but not changed or listed") {
    World world;
    CHECK(world.open("/proc/meminfo", O_RDWR) == -EACCES);
    CHECK(world.open("/proc/meminfo", O_RDONLY | O_TRUNC) == -EACCES);
    CHECK(world.open("/proc/meminfo", O_RDONLY | O_CREAT | O_EXCL) == -EEXIST);
    CHECK(world.open("/proc/meminfo", O_RDONLY | O_DIRECTORY) == -ENOTDIR);
    CHECK(world.open("/proc/meminfo/x", O_RDONLY) == -ENOTDIR);
    CHECK(world.open("/proc/self", O_RDONLY) == -EACCES);
    CHECK(world.open("/proc/self", O_RDWR) == -EISDIR);
    CHECK(world.open("/proc/self/none", O_WRONLY | O_CREAT) == -EACCES);
    CHECK(world.open("/proc/self/exe", O_RDONLY | O_NOFOLLOW) == -ELOOP);
    CHECK(world.open("/proc/self", O_PATH) == 4);
    CHECK(world.call(SYS_openat, 4, world.text("comm"), O_RDONLY, 0, World::kReply) == 5);
    CHECK(world.call(SYS_openat, 4, world.text("../meminfo"), O_RDONLY, 0, World::kReply) == 6);
    CHECK(world.call(SYS_openat, 4, world.text("mem"), O_RDONLY, 0, World::kReply) == -ENOENT);
    CHECK(world.call(SYS_newfstatat, AT_FDCWD, world.text("/proc/self"), World::kData, 0) == 0);
    CHECK(S_ISDIR(world.get<struct stat>(World::kData).st_mode));
    // Not by its descriptor either: machines share it.
    const int fd = world.handles->fd(5);
    CHECK(::pwrite(fd, "x", 1, 0) == -1);
    CHECK(::ftruncate(fd, 0) == -1);
}

TEST_CASE("a permission for everything does not show the host's own") {
    Permissions everything;
    everything.all = true;
    World world(everything);
    CHECK(slurp(world, "/proc/meminfo").find("MemTotal:        1048576 kB\n") == 0);
    CHECK(slurp(world, "/proc/self/comm") == "file.txt\n");
    CHECK(slurp(world, "/proc/self/environ") == "error 2");
}

TEST_CASE("/dev/stdout is the process's") {
    World world;
    CHECK(world.open("/dev/stdout", O_WRONLY) == 4);
    CHECK(world.handles->find(4)->info.kind == HandleKind::stdio);
    CHECK(world.handles->fd(4) != 1);
    CHECK(world.call(SYS_fchmod, 4, 0777) == -EPERM);
    const auto states = world.handles->states();
    std::vector<std::string> warnings;
    HandleTable restored = HandleTable::restore(states, *world.policy, 64, warnings);
    CHECK(restored.fd(4) == 1);
}
