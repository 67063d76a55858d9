#include "tests/unit/linux/world.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

namespace {

struct stat host_stat(const std::string& path) {
    struct stat info {};
    REQUIRE(::lstat(path.c_str(), &info) == 0);
    return info;
}

} // namespace

TEST_CASE("mode") {
    World world;
    const std::string file = world.tmp / "rw/old.txt";
    const auto chmod = [&](const std::string& path, unsigned mode) {
        return world.call(SYS_fchmodat, AT_FDCWD, world.text(path), mode);
    };
    CHECK(chmod(file, 0600) == 0);
    CHECK((host_stat(file).st_mode & 07777) == 0600);
    CHECK(chmod(file, 06755) == 0);
    CHECK((host_stat(file).st_mode & 07777) == 0755); // never set-user-ID
    CHECK(world.open(file, O_RDONLY) == 4);
    CHECK(world.call(SYS_fchmod, 4, 0640) == 0);
    CHECK((host_stat(file).st_mode & 07777) == 0640);
    CHECK(world.open("file.txt", O_RDONLY) == 5);
    CHECK(world.call(SYS_fchmod, 5, 0777) == -EACCES);
    CHECK(chmod("file.txt", 0777) == -EACCES);
    CHECK_FALSE(world.explained.empty());
    CHECK(chmod(world.tmp / "secret/key", 0777) != 0);
    CHECK(chmod("none", 0777) == -ENOENT);
    CHECK(world.call(SYS_fchmod, 0, 0777) == -EPERM); // stdio is the host's
    CHECK(world.open("/dev/null", O_RDWR) == 6);
    CHECK(world.call(SYS_fchmod, 6, 0777) == -EACCES);
    CHECK(chmod("/proc/self/exe", 0777) == -EACCES);
    CHECK(world.call(SYS_fchmod, -1, 0777) == -EBADF);
    fs::create_symlink("old.txt", world.tmp / "rw/l");
    CHECK(chmod(world.tmp / "rw/l", 0604) == 0);
    CHECK((host_stat(file).st_mode & 07777) == 0604);
    const std::uint64_t link = world.text(world.tmp / "rw/l");
    CHECK(world.call(452, AT_FDCWD, link, 0777, AT_SYMLINK_NOFOLLOW) == -EOPNOTSUPP);
    CHECK(world.call(452, AT_FDCWD, link, 0777, 1) == -EINVAL);
    CHECK(world.call(452, 4, world.text(""), 0611, AT_EMPTY_PATH) == 0);
    fs::create_symlink(world.tmp / "open/file.txt", world.tmp / "rw/out");
    CHECK(chmod(world.tmp / "rw/out", 0777) == -EACCES);
    CHECK(world.call(SYS_fchmodat, AT_FDCWD, World::kHole, 0777) == -EFAULT);
}

TEST_CASE("owner: only one's own") {
    World world;
    const std::string file = world.tmp / "rw/old.txt";
    CHECK(world.open(file, O_RDWR) == 4);
    CHECK(world.call(SYS_fchown, 4, ::geteuid(), ::getegid()) == 0);
    CHECK(world.call(SYS_fchown, 4, -1, -1) == 0);
    CHECK(world.call(SYS_fchown, 4, ::geteuid() + 1, -1) == -EPERM);
    CHECK(world.call(SYS_fchown, 4, -1, ::getegid() + 1) == -EPERM);
    CHECK(world.call(SYS_fchown, 3, ::geteuid(), -1) == -EACCES);
    CHECK(world.call(SYS_fchownat, AT_FDCWD, world.text(file), ::geteuid(), -1, AT_SYMLINK_NOFOLLOW) == 0);
    CHECK(world.call(SYS_fchownat, AT_FDCWD, world.text("file.txt"), -1, -1, 0) == -EACCES);
    CHECK(world.call(SYS_fchownat, AT_FDCWD, world.text(file), -1, -1, 4) == -EINVAL);
    CHECK(world.call(SYS_fchownat, AT_FDCWD, World::kHole, -1, -1, 0) == -EFAULT);
    CHECK(world.call(SYS_fchown, 99, -1, -1) == -EBADF);
}

TEST_CASE("times") {
    World world;
    const std::string file = world.tmp / "rw/old.txt";
    struct Times {
        timespec access, modify;
    };
    const std::uint64_t times = world.put(Times{{1, 0}, {1234567, 0}});
    CHECK(world.call(SYS_utimensat, AT_FDCWD, world.text(file), times, 0) == 0);
    CHECK(host_stat(file).st_mtim.tv_sec == 1234567);
    CHECK(world.call(SYS_utimensat, AT_FDCWD, world.text(file), 0, 0) == 0);
    CHECK(host_stat(file).st_mtim.tv_sec > 1234567);
    CHECK(world.open(file, O_RDONLY) == 4);
    CHECK(world.call(SYS_utimensat, 4, 0, times, 0) == 0);
    CHECK(host_stat(file).st_mtim.tv_sec == 1234567);
    CHECK(world.call(SYS_utimensat, 4, 0, times, AT_SYMLINK_NOFOLLOW) == -EINVAL);
    CHECK(world.call(SYS_utimensat, AT_FDCWD, world.text("file.txt"), times, 0) == -EACCES);
    CHECK(world.call(SYS_utimensat, AT_FDCWD, world.text("none"), times, 0) == -ENOENT);
    CHECK(world.call(SYS_utimensat, AT_FDCWD, world.text(file), World::kHole, 0) == -EFAULT);
    CHECK(world.call(SYS_utimensat, AT_FDCWD, world.text(file), times, 8) == -EINVAL);
    CHECK(world.call(SYS_utimensat, AT_FDCWD, world.text(file), world.put(Times{{0, -5}, {0, 1ll << 40}}), 0) ==
          -EINVAL);
    CHECK(world.call(SYS_utimensat, -7, 0, times, 0) == -EBADF);
    fs::create_symlink(world.tmp / "open/file.txt", world.tmp / "rw/l");
    world.put(Times{{1, 0}, {1234567, 0}});
    CHECK(world.call(SYS_utimensat, AT_FDCWD, world.text(world.tmp / "rw/l"), times, AT_SYMLINK_NOFOLLOW) == 0);
    CHECK(host_stat(world.tmp / "open/file.txt").st_mtim.tv_sec != 1234567);
}

TEST_CASE("extended attributes of nothing") {
    World world;
    for (const long nr : {SYS_getxattr, SYS_llistxattr})
        CHECK(world.call(nr, World::kHole, ~0ull, ~0ull, ~0ull) == -EFAULT);
    for (const long nr : {SYS_fsetxattr, SYS_fremovexattr})
        CHECK(world.call(nr, ~0ull, ~0ull, ~0ull, ~0ull) == -EBADF);
}
