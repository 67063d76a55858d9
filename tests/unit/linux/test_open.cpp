#include <sched.h>

#include <thread>

#include "tests/unit/linux/world.hpp"
#include "tinykvm/abi/guest_kernel.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

TEST_CASE("openat gives a handle and tells what it is") {
    World world;
    CHECK(world.open(world.tmp / "open/file.txt", O_RDONLY) == 4);
    auto reply = world.get<abi::OpenReply>(World::kReply);
    CHECK(S_ISREG(reply.mode));
    CHECK(reply.seekable == 1);
    CHECK(world.open(world.tmp / "open/sub", O_RDONLY | O_DIRECTORY) == 5);
    reply = world.get<abi::OpenReply>(World::kReply);
    CHECK((S_ISDIR(reply.mode) && reply.seekable == 1));
    CHECK(world.open("/dev/null", O_RDWR) == 6);
    reply = world.get<abi::OpenReply>(World::kReply);
    CHECK((S_ISCHR(reply.mode) && reply.seekable == 0));
    CHECK(world.call(abi::kCloseHandle, 5) == 0);
    CHECK(world.call(abi::kCloseHandle, 5) == -EBADF);
    CHECK(world.call(abi::kCloseHandle, -1) == -EBADF);
}

TEST_CASE("openat brings all of a small file that is opened for reading only") {
    World world;
    const auto content = [&](const std::string& path, int flags) {
        CHECK(world.call(SYS_openat, AT_FDCWD, world.text(path), flags, 0, World::kReply, World::kData) >= 4);
        return world.bytes(World::kData, world.get<abi::OpenReply>(World::kReply).content_bytes);
    };
    const auto file = [&](std::size_t bytes) {
        std::ofstream(world.tmp / "rw/content") << std::string(bytes, 'x');
        return world.tmp / "rw/content";
    };
    CHECK(content(file(1), O_RDONLY) == "x");
    CHECK(content(file(abi::kContentBytes), O_RDONLY).size() == abi::kContentBytes);
    CHECK(content(file(abi::kContentBytes + 1), O_RDONLY).empty());
    CHECK(content(file(0), O_RDONLY).empty());
    CHECK(content(file(5), O_RDWR).empty());
    CHECK(content(file(5), O_PATH).empty());
    CHECK(content(world.tmp / "open/sub", O_RDONLY | O_DIRECTORY).empty());
    // Nowhere to put it: the file is open all the same.
    CHECK(world.call(SYS_openat, AT_FDCWD, world.text(world.tmp / "rw/content"), O_RDONLY, 0, World::kReply,
                     World::kHole) >= 4);
    CHECK(world.get<abi::OpenReply>(World::kReply).content_bytes == 0);
}

TEST_CASE("openat is relative to a folder, by the path that it had") {
    World world;
    CHECK(world.open("file.txt", O_RDONLY) == 4); // the current folder
    CHECK(world.open(world.tmp / "open/sub", O_PATH | O_DIRECTORY) == 5);
    const auto at = [&](std::int64_t folder, const std::string& path) {
        return world.call(SYS_openat, folder, world.text(path), O_RDONLY, 0, World::kReply);
    };
    CHECK(at(5, "inner.txt") == 6);
    CHECK(at(5, "../file.txt") == 7);
    CHECK(at(5, "../../secret/key") == -ENOENT);
    CHECK(at(4, "x") == -ENOTDIR);
    CHECK(at(99, "x") == -EBADF);
    CHECK(at(-1, "x") == -EBADF);
    CHECK(at(99, world.tmp / "open/file.txt") == 8); // absolute: the folder is not looked at
    fs::rename(world.tmp / "open/sub", world.tmp / "secret/sub");
    CHECK(at(5, "inner.txt") == -ENOENT);
    CHECK(at(5, "../key") == -ENOENT);
}

TEST_CASE("openat with hostile arguments") {
    World world;
    const std::size_t before = open_fds();
    CHECK(world.open("", O_RDONLY) == -ENOENT);
    CHECK(world.call(SYS_openat, AT_FDCWD, World::kHole, O_RDONLY, 0, World::kReply) == -EFAULT);
    CHECK(world.call(SYS_openat, AT_FDCWD, 0, O_RDONLY, 0, World::kReply) == -EFAULT);
    CHECK(world.call(SYS_openat, AT_FDCWD, ~0ull - 2, O_RDONLY, 0, World::kReply) == -EFAULT);
    CHECK(world.open(std::string(4096, 'x'), O_RDONLY) == -ENAMETOOLONG);
    // The reply cannot be written: the handle does not stay.
    const std::string file = world.tmp / "open/file.txt";
    for (const std::uint64_t reply : {World::kHole, World::kReadOnly, ~std::uint64_t{3}, World::kDataEnd - 4})
        CHECK(world.call(SYS_openat, AT_FDCWD, world.text(file), O_RDONLY, 0, reply) == -EFAULT);
    CHECK(world.handles->find(4) == nullptr);
    CHECK(open_fds() == before);
    CHECK(world.open(file, O_RDONLY) == 4);
}

TEST_CASE("a refusal names the flag that would allow it, once") {
    World world;
    CHECK(world.open(world.tmp / "secret/key", O_RDONLY) == -ENOENT);
    CHECK(world.explained == "open \"" + (world.tmp / "secret/key") +
                                 "\": not permitted; --allow-read=" + (world.tmp / "secret/key") + " would allow it");
    CHECK(world.open(world.tmp / "open/out", O_RDWR) == -EACCES);
    CHECK(world.explained.find("--allow-write=" + (world.tmp / "secret/key")) != std::string::npos);
    CHECK(world.open(world.tmp / "open/none", O_RDONLY) == -ENOENT);
    CHECK(world.explained.empty());
    CHECK(world.open("/proc/self/mem", O_RDONLY) == -ENOENT);
    CHECK(world.explained.find("no permission shows it") != std::string::npos);
}

TEST_CASE("set-user-ID files are not made") {
    World world;
    CHECK(world.open(world.tmp / "rw/suid", O_WRONLY | O_CREAT, 06777) == 4);
    CHECK((fs::status(world.tmp / "rw/suid").permissions() & (fs::perms::set_uid | fs::perms::set_gid)) ==
          fs::perms::none);
}

TEST_CASE("what is created has the mode that was asked for, whatever the mask of the process") {
    World world;
    const auto mode = [&](const std::string& path) {
        struct stat info {};
        REQUIRE(::lstat((world.tmp / path).c_str(), &info) == 0);
        return info.st_mode & 0777;
    };
    std::thread([&] {
        REQUIRE(::unshare(CLONE_FS) == 0);
        ::umask(077);
        world.open(world.tmp / "rw/file", O_WRONLY | O_CREAT, 0666);
        CHECK(mode("rw/file") == 0666);
        CHECK(world.call(SYS_mkdirat, AT_FDCWD, world.text(world.tmp / "rw/dir"), 0755) == 0);
        CHECK(mode("rw/dir") == 0755);
        CHECK(world.call(SYS_mknodat, AT_FDCWD, world.text(world.tmp / "rw/fifo"), S_IFIFO | 0664, 0) == 0);
        CHECK(mode("rw/fifo") == 0664);
        const std::int64_t unnamed = world.open(world.tmp / "rw", O_RDWR | O_TMPFILE, 0644);
        struct stat info {};
        REQUIRE(unnamed > 0);
        REQUIRE(::fstat(world.handles->fd(static_cast<std::int32_t>(unnamed)), &info) == 0);
        CHECK((info.st_mode & 0777) == 0644);
        CHECK(::umask(0) == 077);
    }).join();
}

TEST_CASE("memfd_create") {
    World world;
    CHECK(world.call(SYS_memfd_create, world.text("name"), 1 /* MFD_CLOEXEC */, World::kReply) == 4);
    CHECK(world.get<abi::OpenReply>(World::kReply).seekable == 1);
    std::string text;
    CHECK(world.write(4, "abc", 5) == 3);
    CHECK(world.read(4, 100, 0, text) == 8);
    CHECK(text == std::string(5, '\0') + "abc");
    CHECK(world.call(SYS_memfd_create, World::kHole, 0, World::kReply) == -EFAULT);
    CHECK(world.call(SYS_memfd_create, world.text("n"), 4 /* MFD_HUGETLB */, World::kReply) == -EINVAL);
    CHECK(world.call(SYS_memfd_create, world.text(std::string(250, 'n')), 0, World::kReply) == -EINVAL);
    CHECK(world.call(SYS_memfd_create, world.text("n"), 0, World::kHole) == -EFAULT);
}

TEST_CASE("the current folder") {
    World world;
    const auto cwd = [&] {
        const std::int64_t n = world.call(SYS_getcwd, World::kData, 4096);
        return n > 0 ? world.bytes(World::kData, static_cast<std::size_t>(n) - 1) : "error";
    };
    CHECK(cwd() == world.tmp / "open");
    CHECK(world.call(SYS_chdir, world.text("linkdir")) == 0);
    CHECK(cwd() == world.tmp / "open/sub");
    CHECK(world.open("inner.txt", O_RDONLY) == 4);
    CHECK(world.call(SYS_chdir, world.text("..")) == 0);
    CHECK(world.call(SYS_chdir, world.text("file.txt")) == -ENOTDIR);
    CHECK(world.call(SYS_chdir, world.text("none")) == -ENOENT);
    CHECK(world.call(SYS_chdir, world.text(world.tmp / "secret")) == -ENOENT);
    CHECK_FALSE(world.explained.empty());
    CHECK(world.call(SYS_chdir, World::kHole) == -EFAULT);
    CHECK(world.open(world.tmp / "rw", O_RDONLY) == 5);
    CHECK(world.call(SYS_fchdir, 5) == 0);
    CHECK(cwd() == world.tmp / "rw");
    CHECK(world.call(SYS_fchdir, 4) == -ENOTDIR);
    CHECK(world.call(SYS_fchdir, -3) == -EBADF);
    CHECK(world.call(SYS_getcwd, World::kData, 3) == -ERANGE);
    CHECK(world.call(SYS_getcwd, World::kHole, 4096) == -EFAULT);
    world.handles->reset();
    CHECK(cwd() == world.tmp / "open");
    world.handles->close(3);
    CHECK(world.call(SYS_chdir, world.text("/")) == -EBADF);
    CHECK(world.call(SYS_getcwd, World::kData, 4096) == -EBADF);
}
