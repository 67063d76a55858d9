#include <dirent.h>
#include <linux/fs.h>

#include <set>

#include "tests/unit/linux/world.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

namespace {

struct Entry {
    std::uint64_t ino;
    std::int64_t next;
    std::uint16_t bytes;
    std::uint8_t type;
} __attribute__((packed));

// Lists a folder as the guest kernel does, with a small buffer, from an offset that it keeps.
std::set<std::string> list(World& world, std::int64_t handle, std::uint64_t room) {
    std::set<std::string> names;
    std::int64_t offset = 0;
    while (true) {
        const std::int64_t n = world.call(SYS_getdents64, handle, World::kData, room, offset, World::kReply);
        REQUIRE(n >= 0);
        if (n == 0)
            return names;
        for (std::int64_t at = 0; at < n;) {
            const auto entry = world.get<Entry>(World::kData + static_cast<std::uint64_t>(at));
            names.insert(world.bytes(World::kData + static_cast<std::uint64_t>(at) + 19, entry.bytes - 19u).c_str());
            at += entry.bytes;
        }
        const auto next = world.get<std::int64_t>(World::kReply);
        REQUIRE(next != offset);
        offset = next;
    }
}

const std::set<std::string> kOpenNames{".",       "..",  "file.txt", "sub",  "link",
                                       "linkdir", "out", "outdir",   "loop", "dangling"};

} // namespace

TEST_CASE("folders are listed from the offset that is given") {
    World world;
    CHECK(world.open(".", O_RDONLY | O_DIRECTORY) == 4);
    CHECK(list(world, 4, 4096) == kOpenNames);
    CHECK(list(world, 4, 64) == kOpenNames);
    world.handles->freeze();
    CHECK(list(world, 4, 64) == kOpenNames);
    world.handles->reset();
    CHECK(list(world, 4, 64) == kOpenNames);
}

TEST_CASE("listing with hostile arguments") {
    World world;
    CHECK(world.open(".", O_RDONLY | O_DIRECTORY) == 4);
    CHECK(world.open("file.txt", O_RDONLY) == 5);
    const auto list_with = [&](std::int64_t handle, std::uint64_t to, std::uint64_t room, std::int64_t offset,
                               std::uint64_t reply) {
        return world.call(SYS_getdents64, handle, to, room, offset, reply);
    };
    CHECK(list_with(5, World::kData, 4096, 0, World::kReply) == -ENOTDIR);
    CHECK(list_with(3, World::kData, 4096, 0, World::kReply) == -EBADF); // O_PATH
    CHECK(list_with(-1, World::kData, 4096, 0, World::kReply) == -EBADF);
    CHECK(list_with(4, World::kHole, 4096, 0, World::kReply) == -EFAULT);
    CHECK(list_with(4, World::kData, 4096, 0, World::kHole) == -EFAULT);
    CHECK(list_with(4, World::kData, 3, 0, World::kReply) == -EINVAL);
    CHECK(list_with(4, World::kData, 4096, -5, World::kReply) == -EINVAL);
    CHECK(list_with(4, World::kData, ~0ull, 0, World::kReply) > 0); // clamped
}

TEST_CASE("mkdir and rmdir") {
    World world;
    const auto mkdir = [&](const std::string& path) {
        return world.call(SYS_mkdirat, AT_FDCWD, world.text(path), 06755);
    };
    const auto rmdir = [&](const std::string& path) {
        return world.call(SYS_unlinkat, AT_FDCWD, world.text(path), AT_REMOVEDIR);
    };
    CHECK(mkdir(world.tmp / "rw/d") == 0);
    CHECK((fs::status(world.tmp / "rw/d").permissions() & fs::perms::set_uid) == fs::perms::none);
    CHECK(mkdir(world.tmp / "rw/d/e/") == 0);
    CHECK(mkdir(world.tmp / "rw/d") == -EEXIST);
    CHECK(mkdir(world.tmp / "rw/d/.") == -EEXIST);
    CHECK(mkdir(world.tmp / "rw/none/d") == -ENOENT);
    CHECK(mkdir(world.tmp / "rw/old.txt/d") == -ENOTDIR);
    CHECK(mkdir(world.tmp.path) == -EEXIST); // mkdir -p walks down from here
    CHECK(mkdir("/") == -EEXIST);
    CHECK(mkdir("sub") == -EEXIST);
    CHECK(mkdir("new") == -EACCES);
    CHECK_FALSE(world.explained.empty());
    CHECK(mkdir(world.tmp / "secret") == -EACCES);
    CHECK(mkdir(world.tmp / "secret/d") == -EACCES);
    CHECK(mkdir("outdir/d") == -EACCES);
    CHECK(mkdir("") == -ENOENT);
    CHECK(world.call(SYS_mkdirat, AT_FDCWD, World::kHole, 0755) == -EFAULT);
    CHECK(world.call(SYS_mkdirat, 98, world.text("x"), 0755) == -EBADF);
    CHECK(rmdir(world.tmp / "rw/d") == -ENOTEMPTY);
    CHECK(rmdir(world.tmp / "rw/d/e/.") == -EINVAL);
    CHECK(rmdir(world.tmp / "rw/d/e/..") == -ENOTEMPTY);
    CHECK(rmdir(world.tmp / "rw/d/e/") == 0);
    CHECK(rmdir(world.tmp / "rw/old.txt") == -ENOTDIR);
    CHECK(rmdir("/") == -EBUSY);
    CHECK(rmdir("sub") == -EACCES);
    CHECK(rmdir("none") == -ENOENT);
}

TEST_CASE("unlink removes names, never through links") {
    World world;
    const auto unlink = [&](const std::string& path, int flags = 0) {
        return world.call(SYS_unlinkat, AT_FDCWD, world.text(path), flags);
    };
    fs::create_symlink(world.tmp / "secret/key", world.tmp / "rw/l");
    fs::create_directory_symlink(world.tmp / "secret", world.tmp / "rw/ld");
    CHECK(unlink(world.tmp / "rw/ld/key") == -EACCES);
    CHECK(unlink(world.tmp / "rw/../secret/key") == -EACCES);
    CHECK(unlink(world.tmp / "rw/l") == 0);
    CHECK(read_file(world.tmp / "secret/key") == "SECRET");
    CHECK(unlink(world.tmp / "rw/old.txt/") == -ENOTDIR);
    CHECK(unlink(world.tmp / "rw/old.txt") == 0);
    CHECK(unlink(world.tmp / "rw/old.txt") == -ENOENT);
    CHECK(unlink(world.tmp / "secret/none") == -EACCES);
    CHECK(unlink("file.txt") == -EACCES);
    CHECK(unlink("none") == -ENOENT);
    CHECK(unlink("/proc/self/status") == -EACCES);
    CHECK(unlink(world.tmp / "rw/x", 1) == -EINVAL);
    CHECK(world.call(SYS_unlinkat, AT_FDCWD, World::kHole, 0) == -EFAULT);
}

TEST_CASE("rename needs the right to change at both ends") {
    World world;
    const auto rename = [&](const std::string& from, const std::string& to, unsigned flags = 0) {
        return world.call(SYS_renameat2, AT_FDCWD, world.text(from, 0), AT_FDCWD, world.text(to, 1), flags);
    };
    const std::string rw = world.tmp / "rw/";
    CHECK(rename(rw + "old.txt", rw + "new.txt") == 0);
    CHECK(world.call(SYS_renameat, AT_FDCWD, world.text(rw + "new.txt", 0), AT_FDCWD, world.text(rw + "old.txt", 1),
                     ~0ull) == 0); // has no flags
    CHECK(rename(rw + "none", rw + "x") == -ENOENT);
    CHECK(rename("file.txt", rw + "x") == -EACCES);
    CHECK(rename(rw + "old.txt", "x") == -EACCES);
    CHECK(rename(rw + "old.txt", "file.txt") == -EACCES);
    CHECK(rename(world.tmp / "secret/key", rw + "x") == -EACCES);
    CHECK(rename(world.tmp / "secret/none", rw + "x") == -EACCES);
    CHECK(rename(rw + "old.txt", world.tmp / "secret/key") == -EACCES);
    CHECK(rename(rw + ".", rw + "x") == -EBUSY);
    CHECK(rename(rw + "old.txt", rw + "..") == -EBUSY);
    CHECK(rename(rw + "old.txt", rw + "x/") == -ENOTDIR);
    write_file(rw + "second", "2");
    CHECK(rename(rw + "old.txt", rw + "second", RENAME_NOREPLACE) == -EEXIST);
    CHECK(rename(rw + "old.txt", rw + "second", RENAME_EXCHANGE) == 0);
    CHECK(read_file(rw + "old.txt") == "2");
    CHECK(rename(rw + "old.txt", rw + "second", RENAME_WHITEOUT) == -EINVAL);
    CHECK(world.call(SYS_renameat2, AT_FDCWD, world.text(rw + "second"), AT_FDCWD, World::kHole, 0) == -EFAULT);
    CHECK(read_file(world.tmp / "secret/key") == "SECRET");
}

TEST_CASE("a hard link does not make a readable file writable") {
    World world;
    const auto link = [&](const std::string& from, const std::string& to, int flags = 0) {
        return world.call(SYS_linkat, AT_FDCWD, world.text(from, 0), AT_FDCWD, world.text(to, 1), flags);
    };
    const std::string rw = world.tmp / "rw/";
    CHECK(link(rw + "old.txt", rw + "again") == 0);
    CHECK(read_file(rw + "again") == "old");
    CHECK(link(rw + "old.txt", rw + "again") == -EEXIST);
    CHECK(link("file.txt", rw + "x") == -EACCES);
    CHECK(link(world.tmp / "secret/key", rw + "x") == -EACCES);
    CHECK(link(rw + "old.txt", "x") == -EACCES);
    fs::create_symlink(world.tmp / "open/file.txt", rw + "s");
    CHECK(link(rw + "s", rw + "followed", AT_SYMLINK_FOLLOW) == -EACCES);
    CHECK(link(rw + "s", rw + "copied") == 0); // the link itself
    CHECK(fs::is_symlink(rw + "copied"));
    CHECK(link(rw + "old.txt", rw + "by-flag", AT_EMPTY_PATH) == 0); // only an empty path makes a difference
    CHECK(link(rw + "old.txt", rw + "x", 1) == -EINVAL);
    CHECK(link(rw + "none", rw + "x") == -ENOENT);
    CHECK(world.call(SYS_linkat, AT_FDCWD, World::kHole, AT_FDCWD, world.text("x"), 0) == -EFAULT);
}

TEST_CASE("symlinks may say anything; following them is checked") {
    World world;
    const auto symlink = [&](const std::string& target, const std::string& at) {
        return world.call(SYS_symlinkat, world.text(target, 0), AT_FDCWD, world.text(at, 1));
    };
    const std::string rw = world.tmp / "rw/";
    CHECK(symlink(world.tmp / "secret", rw + "s") == 0);
    CHECK(world.open(rw + "s/key", O_RDONLY) == -ENOENT);
    CHECK(world.open(rw + "s/new", O_WRONLY | O_CREAT) == -EACCES);
    CHECK(symlink("x", rw + "s") == -EEXIST);
    CHECK(symlink("", rw + "t") == -ENOENT);
    CHECK(symlink("x", rw + "t/") == -ENOENT);
    CHECK(symlink("x", "t") == -EACCES);
    CHECK(symlink("x", world.tmp / "secret/t") == -EACCES);
    CHECK(world.call(SYS_symlinkat, World::kHole, AT_FDCWD, world.text("t")) == -EFAULT);
    CHECK(world.call(SYS_symlinkat, world.text("x"), AT_FDCWD, World::kHole) == -EFAULT);
}
