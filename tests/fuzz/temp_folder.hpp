// A folder for what a target makes, and walls around it.
#pragma once
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

namespace fuzz {

// Goes away with the process.
class TempFolder {
public:
    // Not in /tmp, which is the machine's own to a guest.
    explicit TempFolder(const char* name, const char* in = "/var/tmp") {
        path_ = std::filesystem::canonical(in).string() + "/fuzz-" + name + "-XXXXXX";
        if (!::mkdtemp(path_.data())) {
            std::perror("mkdtemp");
            std::exit(1);
        }
    }
    ~TempFolder() {
        std::error_code ignored;
        if (mounted_)
            ::umount2(path_.c_str(), MNT_DETACH);
        std::filesystem::remove_all(path_, ignored);
    }
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;
    const std::string& path() const { return path_; }
    // Only this process sees what is in it, which is memory, and not much of it.
    void mount_memory() { mounted_ = ::mount("fuzz", path_.c_str(), "tmpfs", 0, "size=64m") == 0; }

private:
    std::string path_;
    bool mounted_ = false;
};

// A network and mounts of the process's own, where it may have them: true when it has both. Files do not grow
// large either way.
inline bool wall_off() {
    const rlimit most{256 << 20, 256 << 20};
    ::setrlimit(RLIMIT_FSIZE, &most);
    ::signal(SIGXFSZ, SIG_IGN);
    if (::unshare(CLONE_NEWNS | CLONE_NEWNET) != 0)
        return false;
    ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ifreq loopback{};
    std::strcpy(loopback.ifr_name, "lo");
    loopback.ifr_flags = IFF_UP | IFF_RUNNING;
    const bool up = ::ioctl(socket, SIOCSIFFLAGS, &loopback) == 0;
    ::close(socket);
    return up;
}

} // namespace fuzz
