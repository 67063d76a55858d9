#include <sched.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "tests/unit/linux/world.hpp"
#include "tinykvm/linux/unix_name.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

namespace {

UniqueFd a_socket() { return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }
UniqueFd folder_of(const std::string& path) { return UniqueFd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)); }

mode_t mode_of(const std::string& path) {
    struct stat info {};
    REQUIRE(::lstat(path.c_str(), &info) == 0);
    return info.st_mode & 07777;
}

} // namespace

TEST_CASE("the name of a socket has the mode that was asked for, whatever the process's mask") {
    TempFolder tmp;
    std::thread([&] { // with a mask of its own
        REQUIRE(::unshare(CLONE_FS) == 0);
        ::umask(077);
        for (const mode_t mode : {0777u, 0750u, 0600u, 0000u}) {
            const UniqueFd socket = a_socket();
            UnixName name;
            REQUIRE(name.bind(socket.get(), folder_of(tmp.path), "name", mode, UnixName::Dead::stays) == 0);
            CHECK(mode_of(tmp / "name") == mode);
            CHECK(name.mode() == mode);
        }
        CHECK(::umask(0) == 077);
    })
        .join();
}

TEST_CASE("a link that takes the place of a socket's name does not give its mode to another file") {
    TempFolder tmp;
    write_file(tmp / "victim", "");
    REQUIRE(::chmod((tmp / "victim").c_str(), 0640) == 0);
    fs::create_symlink("victim", tmp / "link");
    std::atomic<bool> stop = false;
    std::thread other([&, name = tmp / "name", link = tmp / "link"] {
        while (!stop)
            ::renameat2(AT_FDCWD, name.c_str(), AT_FDCWD, link.c_str(), RENAME_EXCHANGE);
    });
    for (int n = 0; n < 3000 && mode_of(tmp / "victim") == 0640; ++n) {
        const UniqueFd socket = a_socket();
        UnixName name;
        name.bind(socket.get(), folder_of(tmp.path), "name", 0777, UnixName::Dead::stays);
        for (const std::string& path : {tmp / "name", tmp / "link"}) // whichever is not the link now
            if (!fs::is_symlink(path))
                ::unlink(path.c_str());
        if (!fs::is_symlink(tmp / "link") && ::rename((tmp / "name").c_str(), (tmp / "link").c_str()) != 0)
            break;
    }
    stop = true;
    other.join();
    CHECK(mode_of(tmp / "victim") == 0640);
}
