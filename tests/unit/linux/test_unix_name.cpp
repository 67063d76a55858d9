#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>

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

namespace {

// In a process with a mount namespace of its own: another file system's file, of the same inode number, covers the
// socket's name. 0: mode() does not report that file's mode; 77: this host does not allow such mounts.
int mode_under_a_mount(const std::string& folder) {
    constexpr int kCannot = 77;
    const auto mounted = [&](const char* name) {
        const std::string at = folder + "/" + name;
        return ::mkdir(at.c_str(), 0700) == 0 && ::mount("tmpfs", at.c_str(), "tmpfs", 0, nullptr) == 0;
    };
    if ((::geteuid() != 0 && ::unshare(CLONE_NEWUSER) != 0) || ::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 || !mounted("one") || !mounted("two"))
        return kCannot;
    const UniqueFd socket = a_socket();
    UnixName name;
    if (name.bind(socket.get(), folder_of(folder + "/one"), "name", 0640, UnixName::Dead::stays) != 0)
        return 1;
    const std::string ours = folder + "/one/name", other = folder + "/two/name";
    struct stat a {
    }, b{};
    if (::close(::open(other.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600)) != 0 || ::lstat(ours.c_str(), &a) != 0 ||
        ::lstat(other.c_str(), &b) != 0 || a.st_ino != b.st_ino)
        return kCannot;
    if (name.mode() != 0640)
        return 2;
    if (::mount(other.c_str(), ours.c_str(), nullptr, MS_BIND, nullptr) != 0)
        return kCannot;
    return name.mode() ? 3 : 0;
}

} // namespace

TEST_CASE("a file of another file system with the same inode number is not the socket's name") {
    TempFolder tmp;
    const pid_t child = ::fork();
    if (child == 0)
        ::_exit(mode_under_a_mount(tmp.path));
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        WARN("not tested: this host does not allow the mounts");
    else
        CHECK(WEXITSTATUS(status) == 0);
}
