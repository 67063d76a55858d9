#include <asm/ioctls.h>
#include <sys/file.h>

#include "tests/unit/linux/world.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

TEST_CASE("ioctl: three requests, and ENOTTY") {
    World world;
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    const UniqueFd writer(ends[1]);
    HandleInfo info;
    info.kind = HandleKind::stdio;
    info.path = "/dev/stdin";
    CHECK(world.handles->add(UniqueFd(ends[0]), info) == 4);
    REQUIRE(::write(writer.get(), "abc", 3) == 3);
    CHECK(world.call(SYS_ioctl, 4, FIONREAD, World::kData) == 0);
    CHECK(world.get<int>(World::kData) == 3);
    CHECK(world.call(SYS_ioctl, 4, FIONREAD, World::kHole) == -EFAULT);
    CHECK(world.call(SYS_ioctl, 4, TIOCGWINSZ, World::kData) == -ENOTTY);
    CHECK(world.call(SYS_ioctl, 4, TCGETS, World::kData) == -ENOTTY);
    CHECK(world.call(SYS_ioctl, 4, TCSETS, World::kData) == -ENOTTY);
    CHECK(world.call(SYS_ioctl, 4, TIOCSTI, World::kData) == -ENOTTY);
    CHECK(world.call(SYS_ioctl, 3, FIONREAD, World::kData) == -ENOTTY);
    CHECK(world.call(SYS_ioctl, 4, ~0ull, World::kHole) == -ENOTTY);
    CHECK(world.call(SYS_ioctl, -4, FIONREAD, World::kData) == -EBADF);
}

TEST_CASE("ioctl of a terminal") {
    World world;
    const UniqueFd master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    if (!master || ::grantpt(master.get()) != 0 || ::unlockpt(master.get()) != 0)
        return; // no pseudo-terminals here
    HandleInfo info;
    info.kind = HandleKind::stdio;
    CHECK(world.handles->add(UniqueFd(::open(::ptsname(master.get()), O_RDWR | O_NOCTTY | O_CLOEXEC)), info) == 4);
    CHECK(world.call(SYS_ioctl, 4, TIOCGWINSZ, World::kData) == 0);
    CHECK(world.call(SYS_ioctl, 4, TCGETS, World::kData) == 0);
    CHECK(world.call(SYS_ioctl, 4, TCGETS, World::kDataEnd - 8) == -EFAULT);
    CHECK(world.call(SYS_ioctl, 4, TCSETS, World::kData) == -EPERM);
    CHECK(world.call(SYS_ioctl, 4, TIOCSTI, World::kData) == -ENOTTY);
}

TEST_CASE("status flags are the machine's own") {
    World world;
    CHECK(world.open(world.tmp / "rw/f", O_RDWR | O_CREAT | O_TRUNC) == 4);
    CHECK(world.call(SYS_fcntl, 4, F_GETFL, 0) == O_RDWR);
    CHECK(world.write(4, "abc", 0) == 3);
    world.handles->freeze();
    CHECK(world.call(SYS_fcntl, 4, F_SETFL, O_APPEND | O_NONBLOCK) == 0);
    CHECK(world.call(SYS_fcntl, 4, F_GETFL, 0) == (O_RDWR | O_APPEND));
    CHECK(world.write(4, "!", 0) == 1);
    CHECK(read_file(world.tmp / "rw/f") == "abc!");
    world.handles->reset();
    CHECK(world.write(4, "A", 0) == 1);
    CHECK(read_file(world.tmp / "rw/f") == "Abc!");
    CHECK(world.call(SYS_fcntl, 4, F_SETOWN, 1) == -EINVAL);
    CHECK(world.call(SYS_fcntl, 4, 0x7fffffff, 1) == -EINVAL);
    CHECK(world.call(SYS_fcntl, 44, F_GETFL, 0) == -EBADF);
}

TEST_CASE("locks exclude other machines of the same process and never block") {
    World world;
    CHECK(world.open(world.tmp / "rw/f", O_RDWR | O_CREAT) == 4);
    HandleTable other(world.handles->freeze(), 64);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_len = 10;
    lock.l_pid = 99; // Linux ignores it
    const std::uint64_t at = world.put(lock);
    CHECK(world.call(SYS_fcntl, 4, F_SETLK, at) == 0);
    std::swap(*world.handles, other);
    CHECK(world.call(SYS_fcntl, 4, F_SETLK, at) == -EAGAIN);
    CHECK(world.call(SYS_fcntl, 4, F_SETLKW, at) == -EAGAIN);
    CHECK(world.call(SYS_fcntl, 4, F_GETLK, at) == 0);
    CHECK(world.get<struct flock>(at).l_type == F_WRLCK);
    other.reset(); // the first machine's reset lets go of its lock
    CHECK(world.call(SYS_fcntl, 4, F_SETLKW, world.put(lock)) == 0);

    lock.l_whence = SEEK_CUR;
    CHECK(world.call(SYS_fcntl, 4, F_SETLK, world.put(lock)) == -EINVAL);
    CHECK(world.call(SYS_fcntl, 4, F_SETLK, World::kHole) == -EFAULT);
    CHECK(world.call(SYS_fcntl, 3, F_SETLK, at) != 0);

    CHECK(world.call(SYS_flock, 4, LOCK_EX) == 0);
    std::swap(*world.handles, other);
    CHECK(world.call(SYS_flock, 4, LOCK_EX) == -EAGAIN);
    CHECK(world.call(SYS_flock, 4, LOCK_SH | LOCK_NB) == -EAGAIN);
    other.reset();
    CHECK(world.call(SYS_flock, 4, LOCK_SH) == 0);
    CHECK(world.call(SYS_flock, 4, LOCK_UN) == 0);
    CHECK(world.call(SYS_flock, 4, 0) == -EINVAL);
    CHECK(world.call(SYS_flock, 4, 1234) == -EINVAL);
    CHECK(world.call(SYS_flock, 40, LOCK_EX) == -EBADF);
}

TEST_CASE("seals of a memfd") {
    World world;
    CHECK(world.call(SYS_memfd_create, world.text("m"), 2 /* MFD_ALLOW_SEALING */, World::kReply) == 4);
    CHECK(world.write(4, "abc", 0) == 3);
    CHECK(world.call(SYS_fcntl, 4, F_ADD_SEALS, F_SEAL_WRITE) == 0);
    CHECK(world.call(SYS_fcntl, 4, F_GET_SEALS, 0) == F_SEAL_WRITE);
    CHECK(world.write(4, "x", 0) == -EPERM);
    CHECK(world.call(SYS_fcntl, 3, F_ADD_SEALS, F_SEAL_WRITE) == -EINVAL);
}

TEST_CASE("randomness") {
    World world;
    CHECK(world.call(SYS_getrandom, World::kData, 32, 0) == 32);
    const std::string first = world.bytes(World::kData, 32);
    CHECK(world.call(SYS_getrandom, World::kData, 32, 1) == 32);
    CHECK(world.bytes(World::kData, 32) != first);
    CHECK(world.call(SYS_getrandom, World::kData, 0, 0) == 0);
    CHECK(world.call(SYS_getrandom, World::kHole, 8, 0) == -EFAULT);
    CHECK(world.call(SYS_getrandom, World::kReadOnly, 8, 0) == -EFAULT);
    CHECK(world.call(SYS_getrandom, World::kData, 8, 0x80) == -EINVAL);
    CHECK(world.call(SYS_getrandom, World::kDataEnd - 8, ~0ull, 0) == 8);
    CHECK(world.call(SYS_getrandom, ~0ull - 2, 8, 0) == -EFAULT);
}
