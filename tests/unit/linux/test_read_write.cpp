#include <fcntl.h>
#include <linux/falloc.h>

#include "tests/unit/linux/world.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

namespace {

std::int64_t preadv(World& world, std::int64_t handle, const std::vector<GuestIovec>& iov, std::int64_t offset) {
    for (std::size_t n = 0; n < iov.size(); ++n)
        world.put(iov[n], n * sizeof(GuestIovec));
    return world.call(SYS_preadv, handle, World::kData, iov.size(), offset);
}

} // namespace

TEST_CASE("files are read at the offset that is given") {
    World world;
    CHECK(world.open("file.txt", O_RDONLY) == 4);
    std::string text;
    CHECK(world.read(4, 5, 0, text) == 5);
    CHECK(text == "hello");
    CHECK(world.read(4, 100, 6, text) == 5);
    CHECK(text == "world");
    CHECK(world.read(4, 100, 100, text) == 0);
    CHECK(world.read(4, 100, INT64_MAX, text) == -EINVAL); // offset + length wraps
    CHECK(world.read(4, 1, -1, text) == -EINVAL);
    CHECK(world.read(4, 1, -2, text) == -EINVAL);
    CHECK(world.read(4, 1, INT64_MIN, text) == -EINVAL);
    CHECK(world.read(4, 0, 0, text) == 0);
    CHECK(world.read(77, 1, 0, text) == -EBADF);
    CHECK(world.read(-1, 1, 0, text) == -EBADF);
    CHECK(world.read(3, 1, 0, text) == -EISDIR);
}

TEST_CASE("vectors are taken as Linux takes them") {
    World world;
    CHECK(world.open("file.txt", O_RDONLY) == 4);
    const std::uint64_t to = World::kData + 8192;
    CHECK(preadv(world, 4, {{to, 5}, {to + 100, 0}, {to + 10, 100}}, 0) == 11);
    CHECK(world.bytes(to, 5) == "hello");
    CHECK(world.bytes(to + 10, 6) == " world");
    CHECK(preadv(world, 4, {}, 0) == 0);
    CHECK(world.call(SYS_preadv, 4, 0, 0, 0) == 0);
    CHECK(world.call(SYS_preadv, 4, World::kData, 1025, 0) == -EINVAL);
    CHECK(world.call(SYS_preadv, 4, World::kData, ~0ull, 0) == -EINVAL);
    CHECK(world.call(SYS_preadv, 4, World::kData, 1ull << 60, 0) == -EINVAL); // times 16 wraps to 0
    CHECK(world.call(SYS_preadv, 4, World::kHole, 1, 0) == -EFAULT);
    CHECK(world.call(SYS_preadv, 4, ~0ull - 4, 1, 0) == -EFAULT);
    CHECK(preadv(world, 4, {{to, 5}, {to, 1ull << 63}}, 0) == -EINVAL);
    CHECK(preadv(world, 4, {{World::kHole, 5}}, 0) == -EFAULT);
    CHECK(preadv(world, 4, {{World::kReadOnly, 5}}, 0) == -EFAULT);
    CHECK(preadv(world, 4, {{~0ull - 2, 5}}, 0) == -EFAULT);
    CHECK(preadv(world, 4, {{World::kHole, 0}}, 0) == 0);
    // As much as may be accessed is read.
    CHECK(preadv(world, 4, {{to, 5}, {World::kHole, 5}}, 0) == 5);
    CHECK(preadv(world, 4, {{World::kDataEnd - 3, 100}}, 0) == 3);
    CHECK(preadv(world, 4, {{to, INT64_MAX}}, 0) == 11);
}

TEST_CASE("a huge buffer for a small file is not populated") {
    World world;
    CHECK(world.open("file.txt", O_RDONLY) == 4);
    world.memory.gathered = 0;
    CHECK(preadv(world, 4, {{World::kData + 8192, 900 << 10}}, 0) == 11);
    CHECK(world.memory.gathered < 100 << 10);
}

TEST_CASE("more host ranges than one call takes") {
    World world;
    constexpr std::uint64_t kBig = 0x10000000, kBytes = 6 << 20; // 1536 pages, each its own range
    world.memory.map(kBig, kBytes);
    std::string content;
    for (std::uint64_t n = 0; n < kBytes; ++n)
        content.push_back(static_cast<char>(n * 7 + n / 4096));
    REQUIRE(world.memory.write(GuestVirt(kBig), std::as_bytes(std::span(content))));
    CHECK(world.open(world.tmp / "rw/big", O_RDWR | O_CREAT) == 4);
    CHECK(world.call(SYS_pwritev, 4, world.put(GuestIovec{kBig, kBytes}), 1, 0) == static_cast<std::int64_t>(kBytes));
    CHECK(read_file(world.tmp / "rw/big") == content);
    world.memory.map(kBig, kBytes); // zeros again
    CHECK(world.call(SYS_preadv, 4, world.put(GuestIovec{kBig, kBytes}), 1, 0) == static_cast<std::int64_t>(kBytes));
    CHECK(world.bytes(kBig, kBytes) == content);
}

TEST_CASE("writing goes where it may, appending to the end") {
    World world;
    CHECK(world.open(world.tmp / "rw/f", O_RDWR | O_CREAT) == 4);
    CHECK(world.write(4, "abcdef", 0) == 6);
    CHECK(world.write(4, "XY", 2) == 2);
    CHECK(read_file(world.tmp / "rw/f") == "abXYef");
    CHECK(world.open(world.tmp / "rw/f", O_WRONLY | O_APPEND) == 5);
    CHECK(world.write(5, "!", 0) == 1);
    CHECK(read_file(world.tmp / "rw/f") == "abXYef!");
    CHECK(world.open("file.txt", O_RDONLY) == 6);
    CHECK(world.write(6, "x", 0) == -EBADF);
    std::string text;
    CHECK(world.read(5, 1, 0, text) == -EBADF);
    CHECK(world.write(4, "x", -1) == -EINVAL);
    CHECK(world.open("/proc/meminfo", O_RDONLY) == 7);
    CHECK(world.write(7, "x", 0) == -EBADF);
    CHECK(world.open(world.tmp / "rw/f", O_PATH) == 8);
    CHECK(world.write(8, "x", 0) == -EBADF);
    CHECK(world.read(8, 1, 0, text) == -EBADF);
    CHECK(world.call(SYS_pwritev, 4, world.put(GuestIovec{World::kHole, 5}), 1, 0) == -EFAULT);
    CHECK(world.call(SYS_pwritev, 4, world.put(GuestIovec{World::kReadOnly, 1}), 1, 0) == 1); // readable
}

TEST_CASE("streams: devices, and the process's own that must not block") {
    World world;
    CHECK(world.open("/dev/zero", O_RDWR) == 4);
    std::string text;
    CHECK(world.read(4, 4, -1, text) == 4);
    CHECK(text == std::string(4, '\0'));
    CHECK(world.write(4, "gone", -1) == 4);
    int ends[2];
    REQUIRE(::pipe(ends) == 0); // blocking
    const UniqueFd reader(ends[0]);
    UniqueFd writer(ends[1]);
    HandleInfo info;
    info.kind = HandleKind::stdio;
    info.path = "/dev/stdin";
    CHECK(world.handles->add(UniqueFd(::dup(reader.get())), info) == 5);
    CHECK(world.handles->add(UniqueFd(::dup(writer.get())), info) == 6);
    CHECK(world.read(5, 10, -1, text) == -EAGAIN);
    CHECK(world.write(6, "hi", -1) == 2);
    CHECK(world.read(5, 10, -1, text) == 2);
    // Fill it: short writes, then EAGAIN, never a wait.
    std::int64_t total = 0, n = 0;
    while ((n = world.write(6, std::string(100 << 10, 'x'), -1)) > 0)
        total += n;
    CHECK(n == -EAGAIN);
    CHECK(total > 0);
    world.handles->close(5);
    // The last reader goes: EPIPE, and no signal kills the process.
    const UniqueFd drop(::dup(0));
    ::dup2(drop.get(), reader.get());
    CHECK(world.write(6, "x", -1) == -EPIPE);
}

TEST_CASE("truncating and allocating") {
    World world;
    CHECK(world.open(world.tmp / "rw/f", O_RDWR | O_CREAT) == 4);
    CHECK(world.call(SYS_ftruncate, 4, 100) == 0);
    CHECK(fs::file_size(world.tmp / "rw/f") == 100);
    CHECK(world.call(SYS_ftruncate, 4, -1) == -EINVAL);
    CHECK(world.call(SYS_ftruncate, 3, 0) == -EINVAL);
    CHECK(world.call(SYS_ftruncate, 99, 0) == -EBADF);
    CHECK(world.open(world.tmp / "rw/f", O_RDONLY) == 5);
    CHECK(world.call(SYS_ftruncate, 5, 0) == -EINVAL);
    CHECK(world.call(SYS_truncate, world.text(world.tmp / "rw/f"), 7) == 0);
    CHECK(fs::file_size(world.tmp / "rw/f") == 7);
    CHECK(world.call(SYS_truncate, world.text("file.txt"), 0) == -EACCES);
    CHECK(world.call(SYS_truncate, world.text(world.tmp / "secret/key"), 0) == -EACCES);
    CHECK(world.call(SYS_truncate, world.text(world.tmp / "rw/f"), -1) == -EINVAL);
    CHECK(world.call(SYS_truncate, World::kHole, 0) == -EFAULT);
    CHECK(world.call(SYS_truncate, world.text(world.tmp / "rw"), 0) == -EISDIR);
    CHECK(world.call(SYS_fallocate, 4, 0, 0, 8192) == 0);
    CHECK(fs::file_size(world.tmp / "rw/f") == 8192);
    CHECK(world.call(SYS_fallocate, 4, FALLOC_FL_KEEP_SIZE, 0, -1) == -EINVAL);
    CHECK(world.call(SYS_fallocate, 4, 0, -1, 1) == -EINVAL);
    CHECK(world.call(SYS_fallocate, 3, 0, 0, 1) == -EISDIR);
    CHECK(world.call(SYS_fallocate, -9, 0, 0, 1) == -EBADF);
}

TEST_CASE("syncing, hints and holes") {
    World world;
    CHECK(world.open(world.tmp / "rw/f", O_RDWR | O_CREAT) == 4);
    for (const long nr : {SYS_fsync, SYS_fdatasync, SYS_syncfs}) {
        CHECK(world.call(nr, 4) == 0);
        CHECK(world.call(nr, 88) == -EBADF);
    }
    CHECK(world.call(SYS_sync) == 0);
    CHECK(world.call(SYS_fadvise64, 4, 0, 0, 2) == 0);
    CHECK(world.call(SYS_fadvise64, -1, 0, 0, 2) == -EBADF);
    CHECK(world.call(SYS_readahead, 0, 0, 100) == -ESPIPE);
    CHECK(world.write(4, "data", 0) == 4);
    CHECK(world.call(SYS_lseek, 4, 0, SEEK_DATA) == 0);
    CHECK(world.call(SYS_lseek, 4, 0, SEEK_HOLE) == 4);
    CHECK(world.call(SYS_lseek, 4, 4, SEEK_DATA) == -ENXIO);
    CHECK(world.call(SYS_lseek, 4, -1, SEEK_DATA) == -ENXIO);
    CHECK(world.call(SYS_lseek, 4, 0, SEEK_SET) == -EINVAL);
    CHECK(world.call(SYS_lseek, 99, 0, SEEK_DATA) == -EBADF);
}

TEST_CASE("output goes to who takes it, and then needs no stream that is ready") {
    World world;
    std::string out, err;
    const OutputSink sink = [&](int stream, std::string_view bytes) { (stream == STDERR_FILENO ? err : out) += bytes; };
    world.output = &sink;
    CHECK(world.write(1, "to stdout", -1) == 9);
    CHECK(world.write(2, "to stderr", -1) == 9);
    CHECK(world.open("/dev/stderr", O_WRONLY) == 4);
    CHECK(world.write(4, "!", -1) == 1);
    CHECK(out == "to stdout");
    CHECK(err == "to stderr!");
    CHECK(world.call(SYS_pwritev, 1, World::kHole, 1, -1) == -EFAULT);
}
