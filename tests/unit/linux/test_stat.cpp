#include "tinykvm/abi/guest_kernel.hpp"
#include <sys/statfs.h>

#include "tests/unit/linux/world.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

namespace {

std::int64_t stat_at(World& world, const std::string& path, int flags = 0) {
    return world.call(SYS_newfstatat, AT_FDCWD, world.text(path), World::kData, flags);
}
struct stat seen(World& world) {
    return world.get<struct stat>(World::kData);
}

} // namespace

TEST_CASE("stat of what is permitted") {
    World world;
    CHECK(stat_at(world, "file.txt") == 0);
    CHECK(seen(world).st_size == 11);
    CHECK(stat_at(world, "link") == 0);
    CHECK(S_ISREG(seen(world).st_mode));
    CHECK(stat_at(world, "link", AT_SYMLINK_NOFOLLOW) == 0);
    CHECK(S_ISLNK(seen(world).st_mode));
    CHECK(stat_at(world, "linkdir/", AT_SYMLINK_NOFOLLOW) == 0);
    CHECK(S_ISDIR(seen(world).st_mode));
    CHECK(stat_at(world, "out", AT_SYMLINK_NOFOLLOW) == 0); // the link itself is in a permitted place
    CHECK(stat_at(world, "/") == 0);
    CHECK(world.open("file.txt", O_RDONLY) == 4);
    CHECK(world.call(SYS_fstat, 4, World::kData) == 0);
    CHECK(seen(world).st_size == 11);
    CHECK(world.call(SYS_newfstatat, 4, world.text(""), World::kData, AT_EMPTY_PATH) == 0);
    CHECK(seen(world).st_size == 11);
    CHECK(world.call(SYS_newfstatat, 4, 0, World::kData, AT_EMPTY_PATH) == 0);
    CHECK(world.call(SYS_newfstatat, AT_FDCWD, world.text(""), World::kData, AT_EMPTY_PATH) == 0);
    CHECK(S_ISDIR(seen(world).st_mode));
}

TEST_CASE("stat of what is not, and with hostile arguments") {
    World world;
    CHECK(stat_at(world, "out") == -ENOENT);
    CHECK_FALSE(world.explained.empty());
    CHECK(stat_at(world, world.tmp / "secret/key", AT_SYMLINK_NOFOLLOW) == -ENOENT);
    CHECK(stat_at(world, "") == -ENOENT);
    CHECK(stat_at(world, "file.txt", 0x40000000) == -EINVAL);
    CHECK(world.call(SYS_newfstatat, AT_FDCWD, world.text("file.txt"), World::kReadOnly, 0) == -EFAULT);
    CHECK(world.call(SYS_newfstatat, AT_FDCWD, world.text("file.txt"), World::kDataEnd - 100, 0) == -EFAULT);
    CHECK(world.call(SYS_newfstatat, AT_FDCWD, World::kHole, World::kData, 0) == -EFAULT);
    CHECK(world.call(SYS_newfstatat, -2, world.text("x"), World::kData, 0) == -EBADF);
    CHECK(world.call(SYS_newfstatat, -2, world.text(""), World::kData, AT_EMPTY_PATH) == -EBADF);
    CHECK(world.call(SYS_fstat, -1, World::kData) == -EBADF);
    CHECK(world.call(SYS_fstat, 1ull << 40, World::kHole) == -EFAULT); // an int: handle 0
    CHECK(world.call(SYS_fstat, 0, World::kHole) == -EFAULT);
}

TEST_CASE("statx") {
    World world;
    const auto statx_at = [&](const std::string& path, int flags, unsigned mask, std::uint64_t to) {
        return world.call(SYS_statx, AT_FDCWD, world.text(path), flags, mask, to);
    };
    CHECK(statx_at("file.txt", 0, STATX_BASIC_STATS, World::kData) == 0);
    CHECK(world.get<struct statx>(World::kData).stx_size == 11);
    CHECK(statx_at("/proc/self/exe", AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, World::kData) == 0);
    CHECK(S_ISLNK(world.get<struct statx>(World::kData).stx_mode));
    CHECK(statx_at("file.txt", 0, STATX__RESERVED, World::kData) == -EINVAL);
    CHECK(statx_at("file.txt", AT_STATX_SYNC_TYPE, STATX_SIZE, World::kData) == -EINVAL);
    CHECK(statx_at("file.txt", 1, STATX_SIZE, World::kData) == -EINVAL);
    CHECK(statx_at("file.txt", 0, STATX_SIZE, World::kHole) == -EFAULT);
    CHECK(statx_at("none", 0, STATX_SIZE, World::kData) == -ENOENT);
    CHECK(statx_at("out", 0, STATX_SIZE, World::kData) == -ENOENT);
}

TEST_CASE("statfs") {
    World world;
    CHECK(world.call(SYS_statfs, world.text("file.txt"), World::kData) == 0);
    CHECK(world.get<struct statfs>(World::kData).f_bsize > 0);
    CHECK(world.call(SYS_fstatfs, 3, World::kData) == 0);
    CHECK(world.call(SYS_statfs, world.text("out"), World::kData) == -ENOENT);
    CHECK(world.call(SYS_statfs, world.text("file.txt"), World::kHole) == -EFAULT);
    CHECK(world.call(SYS_fstatfs, 3, World::kHole) == -EFAULT);
    CHECK(world.call(SYS_fstatfs, 55, World::kData) == -EBADF);
}

TEST_CASE("access answers by permissions and by the host") {
    World world;
    const auto access = [&](const std::string& path, int mode) {
        return world.call(SYS_faccessat, AT_FDCWD, world.text(path), mode, 0xdeadbeef); // there is no 4th argument
    };
    CHECK(access("file.txt", F_OK) == 0);
    CHECK(access("file.txt", R_OK) == 0);
    CHECK(access("file.txt", W_OK) == -EACCES);
    CHECK_FALSE(world.explained.empty());
    CHECK(access("file.txt", X_OK) == -EACCES); // the file's own mode
    CHECK(access("sub", R_OK | X_OK) == 0);
    CHECK(access("sub", W_OK) == -EACCES);
    CHECK(access(world.tmp / "rw", W_OK) == 0);
    CHECK(access(world.tmp / "rw/old.txt", R_OK | W_OK) == 0);
    CHECK(access(world.tmp.path, X_OK) == 0);
    CHECK(access(world.tmp.path, R_OK) == -EACCES);
    CHECK(access(world.tmp / "secret/key", F_OK) == -ENOENT);
    CHECK(access(world.tmp / "secret/none", W_OK) == -ENOENT);
    CHECK(access("none", F_OK) == -ENOENT);
    CHECK(access("file.txt", 8) == -EINVAL);
    CHECK(world.call(SYS_faccessat2, AT_FDCWD, world.text("dangling"), F_OK, AT_SYMLINK_NOFOLLOW) == 0);
    CHECK(world.call(SYS_faccessat2, AT_FDCWD, world.text("dangling"), F_OK, 0) == -ENOENT);
    CHECK(world.call(SYS_faccessat2, 3, world.text(""), R_OK, AT_EMPTY_PATH) == 0);
    CHECK(world.call(SYS_faccessat2, AT_FDCWD, world.text("file.txt"), R_OK, 0x8000) == -EINVAL);
    CHECK(world.call(SYS_faccessat2, AT_FDCWD, World::kHole, R_OK, 0) == -EFAULT);
}

TEST_CASE("readlink") {
    World world;
    const auto link = [&](const std::string& path, std::uint64_t room = 4096) {
        const std::int64_t n = world.call(SYS_readlinkat, AT_FDCWD, world.text(path), World::kData, room);
        return n < 0 ? std::to_string(n) : world.bytes(World::kData, static_cast<std::size_t>(n));
    };
    CHECK(link("link") == "file.txt");
    CHECK(link("link", 3) == "fil");
    CHECK(link("out") == "../secret/key"); // its text; not what it leads to
    CHECK(link("/proc/self/exe") == world.tmp / "open/file.txt");
    CHECK(link("file.txt") == std::to_string(-EINVAL));
    CHECK(link("none") == std::to_string(-ENOENT));
    CHECK(link(world.tmp / "secret/key") == std::to_string(-ENOENT));
    CHECK(link("/proc/self/fd/0") == std::to_string(-ENOENT));
    CHECK(link("/proc/self/cwd") == std::to_string(-ENOENT));
    CHECK(link("link", 0) == std::to_string(-EINVAL));
    CHECK(link("link", 0x80000000u) == std::to_string(-EINVAL));
    CHECK(world.call(SYS_readlinkat, AT_FDCWD, world.text("link"), World::kHole, 10) == -EFAULT);
    // What is free of links on the way to the target, as far as it may be looked at.
    const auto plain = [&](const std::string& path) {
        world.put(abi::LinkReply{}, World::kReply - World::kData);
        CHECK(world.call(SYS_readlinkat, AT_FDCWD, world.text(path), World::kData, 4096, World::kReply) > 0);
        const auto reply = world.get<abi::LinkReply>(World::kReply);
        return std::string(reply.plain, reply.bytes);
    };
    CHECK(plain("link") == world.tmp / "open/file.txt");
    CHECK(plain("dangling") == world.tmp / "open");
    CHECK(plain("out") == world.tmp.path);
    std::filesystem::create_symlink("link", world.tmp / "open/second");
    CHECK(plain("second") == world.tmp / "open");
    CHECK(world.call(SYS_readlinkat, AT_FDCWD, world.text("link"), World::kData, 4096, World::kHole) == 8);
    CHECK(world.call(SYS_openat, AT_FDCWD, world.text("link"), O_PATH | O_NOFOLLOW, 0, World::kReply) == 4);
    CHECK(world.call(SYS_readlinkat, 4, world.text(""), World::kData, 100) == 8);
    CHECK(world.call(SYS_readlinkat, 3, world.text(""), World::kData, 100) == -ENOENT);
}
