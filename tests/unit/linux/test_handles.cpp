#include <poll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include "tests/unit/linux/world.hpp"
#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/base/error.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

TEST_CASE("a new table has stdio and the current folder") {
    World world;
    CHECK(world.handles->fd(0) == 0);
    CHECK(world.handles->fd(2) == 2);
    CHECK(world.handles->find(3)->info.path == world.tmp / "open");
    CHECK(world.handles->find(3)->info.kind == HandleKind::directory);
    CHECK(world.handles->find(4) == nullptr);
    CHECK(world.handles->fd(4) == -1);
    CHECK(world.handles->error(4) == EBADF);
    CHECK(world.handles->find(-1) == nullptr);
    CHECK(world.handles->fd(1 << 30) == -1);
    CHECK(world.handles->private_fd(-5) == -EBADF);
    CHECK(world.handles->close(-1) == -EBADF);
    CHECK(world.handles->close(1 << 30) == -EBADF);
}

TEST_CASE("a current folder that is missing is the user's mistake") {
    ProgramFacts facts;
    facts.cwd = "/no/such/folder";
    const Policy policy({}, facts);
    CHECK_THROWS_AS(HandleTable(policy, 16), UserError);
}

TEST_CASE("numbers are given out lowest first") {
    World world;
    const std::string file = world.tmp / "open/file.txt";
    CHECK(world.open(file, O_RDONLY) == 4);
    CHECK(world.open(file, O_RDONLY) == 5);
    CHECK(world.open(file, O_RDONLY) == 6);
    CHECK(world.handles->close(5) == 0);
    CHECK(world.handles->close(5) == -EBADF);
    CHECK(world.handles->close(0) == 0);
    CHECK(world.open(file, O_RDONLY) == 0);
    CHECK(world.open(file, O_RDONLY) == 5);
    CHECK(world.open(file, O_RDONLY) == 7);
}

TEST_CASE("a full table gives EMFILE and loses nothing") {
    World world({}, 6);
    const std::string file = world.tmp / "open/file.txt";
    const std::size_t before = open_fds();
    CHECK(world.open(file, O_RDONLY) == 4);
    CHECK(world.open(file, O_RDONLY) == 5);
    CHECK(world.open(file, O_RDONLY) == -EMFILE);
    CHECK(open_fds() == before + 2);
    world.handles->close(4);
    CHECK(world.open(file, O_RDONLY) == 4);
}

TEST_CASE("reset of a dirty table shows the base again and closes what was opened") {
    World world;
    CHECK(world.open(world.tmp / "open/file.txt", O_RDONLY) == 4);
    CHECK(world.open(world.tmp / "rw/old.txt", O_RDWR | O_APPEND) == 5);
    world.handles->freeze();
    CHECK(world.handles->changed() == 0);
    const std::size_t before = open_fds();

    for (int round = 0; round < 3; ++round) {
        // Dirty everything: open, close base handles, reuse their numbers, change flags, copy, change folder.
        CHECK(world.handles->close(4) == 0);
        CHECK(world.handles->close(1) == 0);
        CHECK(world.open(world.tmp / "rw/new", O_RDWR | O_CREAT) == 1);
        CHECK(world.open(world.tmp / "open/sub/inner.txt", O_RDONLY) == 4);
        CHECK(world.open(world.tmp / "open/sub", O_RDONLY) == 6);
        CHECK(world.call(SYS_fcntl, 5, F_SETFL, 0) == 0);
        CHECK(world.call(SYS_flock, 5, LOCK_EX) == 0);
        CHECK(world.call(SYS_chdir, world.text(world.tmp / "rw")) == 0);
        CHECK(world.call(SYS_socket, AF_INET, SOCK_STREAM, 0) == 7);
        CHECK(world.handles->find(5)->info.flags == O_RDWR);
        CHECK(world.handles->changed() > 0);

        world.handles->reset();
        CHECK(world.handles->changed() == 0);
        CHECK(open_fds() == before);
        CHECK(world.handles->fd(1) == 1);
        CHECK(world.handles->find(3)->info.path == world.tmp / "open");
        CHECK(world.handles->find(4)->info.path == world.tmp / "open/file.txt");
        CHECK(world.handles->find(5)->info.flags == (O_RDWR | O_APPEND));
        CHECK(world.handles->find(6) == nullptr);
        CHECK(world.open(world.tmp / "open/file.txt", O_RDONLY) == 6);
        world.handles->reset();
    }
    // The lock went with the private descriptor that held it.
    const UniqueFd other(::open((world.tmp / "rw/old.txt").c_str(), O_RDWR));
    CHECK(::flock(other.get(), LOCK_EX | LOCK_NB) == 0);
}

TEST_CASE("a base keeps its files open while any table uses it") {
    World world;
    CHECK(world.open(world.tmp / "open/file.txt", O_RDONLY) == 4);
    auto base = world.handles->freeze();
    HandleTable clone(base, 64);
    base.reset();
    world.handles.reset();
    char byte = 0;
    CHECK(::pread(clone.fd(4), &byte, 1, 0) == 1);
    CHECK(byte == 'h');
    const std::size_t before = open_fds();
    HandleTable other(clone.freeze(), 64);
    CHECK(open_fds() == before); // sharing, not duplicating
}

TEST_CASE("clones of a base do not see each other, on threads of their own") {
    World world;
    CHECK(world.open(world.tmp / "open/sub", O_RDONLY) == 4);
    CHECK(world.open(world.tmp / "open/file.txt", O_RDONLY) == 5);
    const auto base = world.handles->freeze();
    std::vector<std::thread> threads;
    std::atomic<int> wrong = 0;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
            HandleTable table(base, 32);
            for (int n = 0; n < 500; ++n) {
                wrong += table.add(UniqueFd(::dup(0)), {}) != 6;
                wrong += table.close(5) != 0;
                wrong += table.find(5) != nullptr;
                wrong += table.private_fd(4) < 0;
                table.reset();
                wrong += table.find(5) == nullptr || table.find(6) != nullptr;
            }
        });
    for (std::thread& thread : threads)
        thread.join();
    CHECK(wrong == 0);
}

TEST_CASE("state of a base handle is private to a machine") {
    World world;
    CHECK(world.open(world.tmp / "open/sub", O_RDONLY | O_DIRECTORY) == 4);
    CHECK(world.open(world.tmp / "open/sub", O_PATH) == 5);
    world.handles->freeze();
    const int shared = world.handles->fd(4);
    const int own = world.handles->private_fd(4);
    CHECK(own >= 0);
    CHECK(own != shared);
    CHECK(world.handles->private_fd(4) == own); // made once
    CHECK(world.handles->fd(4) == own);
    CHECK(world.handles->private_fd(5) == -EBADF); // O_PATH gives no right to read
    world.handles->reset();
    CHECK(world.handles->fd(4) == shared);
}

TEST_CASE("a datagram socket of the base is made anew by its first use, and a connection is lost") {
    World world;
    CHECK(world.call(SYS_socket, AF_INET, SOCK_DGRAM, 0) == 4);
    CHECK(world.call(SYS_socket, AF_INET6, SOCK_STREAM, 0) == 5);
    HandleTable clone(world.handles->freeze(), 64);
    const int silent = clone.fd(4);
    pollfd poll_of{silent, POLLIN | POLLOUT, 0};
    CHECK(::poll(&poll_of, 1, 0) == 1);
    CHECK(poll_of.revents == POLLOUT);
    CHECK(clone.error(4) == ECONNRESET);
    CHECK(!clone.is_unfinished(4));
    CHECK(clone.use(4) == 0);
    CHECK(clone.error(4) == 0);
    CHECK(clone.is_unfinished(4));
    clone.note_answer();
    CHECK(!clone.is_unfinished(4));
    CHECK(clone.fd(4) != silent);
    const int own = clone.fd(4);
    CHECK(clone.use(4) == 0);
    CHECK(clone.fd(4) == own); // made once
    clone.reset();
    CHECK(clone.fd(4) == silent);
    CHECK(clone.use(5) == ECONNRESET);
    CHECK(clone.use(6) == EBADF);
}

TEST_CASE("a memfd of the base is copied before it is written") {
    World world;
    CHECK(world.call(SYS_memfd_create, world.text("m"), 0, World::kReply) == 4);
    CHECK(world.write(4, "before", 0) == 6);
    CHECK(world.call(SYS_ftruncate, 4, 3 << 20) == 0);
    CHECK(world.write(4, "far", (3 << 20) - 3) == 3);
    world.handles->freeze();
    HandleTable clone(world.handles->freeze(), 64);

    std::string text;
    CHECK(world.write(4, "AFTER", 0) == 5);
    CHECK(world.read(4, 6, 0, text) == 6);
    CHECK(text == "AFTERe");
    CHECK(world.read(4, 100, (3 << 20) - 3, text) == 3);
    CHECK(text == "far");
    char seen[7] = "";
    CHECK(::pread(clone.fd(4), seen, 6, 0) == 6);
    CHECK(std::string(seen) == "before");
    CHECK(world.call(SYS_ftruncate, 4, 0) == 0);
    world.handles->reset();
    CHECK(world.read(4, 6, 0, text) == 6);
    CHECK(text == "before");
    CHECK(world.call(SYS_fstat, 4, World::kData) == 0);
    CHECK(world.get<struct stat>(World::kData).st_size == 3 << 20);
}

TEST_CASE("a memfd of the base is copied also when its handle was changed before") {
    World world; // with AddressSanitizer: what names the memfd outlives the handle that is replaced
    CHECK(world.call(SYS_memfd_create, world.text("m"), 0, World::kReply) == 4);
    CHECK(world.write(4, "before", 0) == 6);
    CHECK(world.open(world.tmp / "open/file.txt", O_RDONLY) == 5); // looked at after the memfd's handle
    world.handles->freeze();
    const int shared = world.handles->fd(4);
    world.handles->set_append(4, true);
    const int own = world.handles->private_fd(4);
    CHECK(own >= 0);
    CHECK(own != shared);
    CHECK(world.handles->fd(4) == own);
    CHECK(world.handles->private_fd(4) == own); // made once
    std::string text;
    CHECK(world.read(4, 6, 0, text) == 6);
    CHECK(text == "before");
}

TEST_CASE("attributes of a memfd of the base are changed in a copy") {
    World world;
    CHECK(world.call(SYS_memfd_create, world.text("m"), 2 /* MFD_ALLOW_SEALING */, World::kReply) == 4);
    CHECK(world.write(4, "before", 0) == 6);
    CHECK(world.call(SYS_fchmod, 4, 0640) == 0);
    CHECK(world.call(SYS_fcntl, 4, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    const auto base = world.handles->freeze();
    const HandleTable clone(base, 64);
    const auto seen = [&] {
        CHECK(world.call(SYS_fstat, 4, World::kData) == 0);
        const auto info = world.get<struct stat>(World::kData);
        return std::tuple(info.st_ino, attributes_of(world.handles->fd(4)));
    };
    const auto before = seen();
    CHECK(std::get<1>(before).mode == 0640);
    CHECK(std::get<1>(before).seals == F_SEAL_SHRINK);
    std::string text;
    CHECK(world.read(4, 6, 0, text) == 6);
    CHECK(seen() == before); // not even the time of access
    struct Change {
        const char* what;
        std::function<std::int64_t()> make;
    };
    const std::array times{timespec{5, 0}, timespec{6, 0}};
    world.put(times);
    for (const Change& change :
         {Change{"mode", [&] { return world.call(SYS_fchmod, 4, 0123); }},
          Change{"owner", [&] { return world.call(SYS_fchown, 4, ::geteuid(), ::getegid()); }},
          Change{"times", [&] { return world.call(SYS_utimensat, 4, 0, World::kData, 0); }},
          Change{"by an empty path", [&] { return world.call(452, 4, world.text(""), 0611, AT_EMPTY_PATH); }},
          Change{"seals", [&] { return world.call(SYS_fcntl, 4, F_ADD_SEALS, F_SEAL_SEAL); }}}) {
        INFO(change.what);
        CHECK(change.make() == 0);
        CHECK(std::get<0>(seen()) == std::get<0>(before)); // for the program it is the same file
        CHECK((attributes_of(world.handles->fd(4)).seals & F_SEAL_SHRINK) != 0);
        CHECK(attributes_of(clone.fd(4)) == std::get<1>(before));
        world.handles->reset();
        CHECK(seen() == before);
        world.put(times);
    }
}

TEST_CASE("what may be mapped") {
    World world;
    CHECK(world.open("file.txt", O_RDONLY) == 4);
    CHECK(world.open(world.tmp / "rw/old.txt", O_RDWR) == 5);
    CHECK(world.open(world.tmp / "rw/old.txt", O_WRONLY) == 6);
    CHECK(world.open("file.txt", O_PATH) == 7);
    CHECK(world.open("/proc/meminfo", O_RDONLY) == 8);
    CHECK(world.call(SYS_socket, AF_INET, SOCK_STREAM, 0) == 9);
    const auto error = [&](std::int32_t number, int prot, bool shared) {
        return world.handles->map_error(number, prot, shared);
    };
    CHECK(error(4, PROT_READ | PROT_EXEC, false) == 0);
    CHECK(error(4, PROT_READ | PROT_WRITE, false) == 0);
    CHECK(error(4, PROT_READ | PROT_WRITE, true) == EACCES);
    CHECK(error(5, PROT_READ | PROT_WRITE, true) == 0);
    CHECK(error(6, PROT_READ, false) == EACCES);
    CHECK(error(7, PROT_READ, false) == EBADF);
    CHECK(error(8, PROT_READ, false) == 0);
    CHECK(error(8, PROT_EXEC, false) == EPERM);
    CHECK(error(9, PROT_READ, false) == ENODEV);
    CHECK(error(3, PROT_READ, false) == EBADF); // the current folder is O_PATH
    CHECK(error(0, PROT_READ, false) == ENODEV);
    CHECK(error(-1, PROT_READ, false) == EBADF);
}

TEST_CASE("memfds may not hold more than the limit") {
    World world;
    world.handles->set_memfd_limit(64 << 10);
    CHECK(world.call(SYS_memfd_create, world.text("m"), 0, World::kReply) == 4);
    CHECK(world.write(4, std::string(32 << 10, 'x'), 0) == 32 << 10);
    CHECK(world.write(4, std::string(40 << 10, 'x'), 32 << 10) == -ENOSPC);
    CHECK(world.call(SYS_fallocate, 4, 0, 0, 1ll << 40) == -ENOSPC);
    CHECK(world.call(SYS_memfd_create, world.text("n"), 0, World::kReply) == 5);
    CHECK(world.write(5, std::string(40 << 10, 'x'), 0) == -ENOSPC);
    // What is there already may be written again, and holes may be punched.
    CHECK(world.write(4, std::string(32 << 10, 'y'), 0) == 32 << 10);
    CHECK(world.write(4, std::string(48 << 10, 'y'), 0) == 48 << 10);
    CHECK(world.write(4, std::string(32 << 10, 'y'), 40 << 10) == -ENOSPC);
    CHECK(world.call(SYS_fallocate, 4, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1ll << 40) == 0);
    CHECK(world.handles->memfd_bytes() == 0);
    CHECK(world.write(5, std::string(40 << 10, 'x'), 0) == 40 << 10);
    // The base's are shared by all machines; a machine's own copy of one counts.
    world.handles->freeze();
    CHECK(world.handles->memfd_bytes() == 0);
    CHECK(world.call(SYS_memfd_create, world.text("o"), 0, World::kReply) == 6);
    CHECK(world.write(6, std::string(32 << 10, 'x'), 0) == 32 << 10);
    CHECK(world.write(5, "x", 0) == -ENOSPC);
    CHECK(world.call(SYS_ftruncate, 6, 0) == 0);
    CHECK(world.write(5, "x", 0) == 1);
    CHECK(world.handles->memfd_bytes() == 40 << 10);
}

TEST_CASE("sockets do not outlive a snapshot: they poll as hung up and answer ECONNRESET") {
    World world;
    CHECK(world.call(SYS_socket, AF_INET, SOCK_STREAM, 0) == 4);
    CHECK(world.handles->error(4) == 0);
    world.handles->freeze();
    CHECK(world.handles->error(4) == ECONNRESET);
    CHECK(world.handles->fd(4) >= 0);
    char byte = 0;
    CHECK(::recv(world.handles->fd(4), &byte, 1, MSG_DONTWAIT) == 0); // end of file: ready
    CHECK(world.call(SYS_connect, 4, World::kData, 16) == -ECONNRESET);
    CHECK_FALSE(world.explained.empty());
    CHECK(world.call(SYS_fstat, 4, World::kData) == 0);
    CHECK(world.call(abi::kCloseHandle, 4) == 0);
    CHECK(world.call(SYS_socket, AF_INET, SOCK_STREAM, 0) == 4);
    CHECK(world.handles->error(4) == 0);
}
