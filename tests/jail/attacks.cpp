#include "tests/jail/attacks.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>

namespace attacks {
namespace {

std::string of(const Facts& facts, const std::string& name) { return facts.contains(name) ? facts.at(name) : ""; }
long number(const Facts& facts, const std::string& name) { return std::atol(of(facts, name).c_str()); }

std::string opened(const std::string& path, int flags) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
    return fd >= 0 ? "opened " + path : "";
}

std::string connected(sockaddr_un address, socklen_t length) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    return fd >= 0 && ::connect(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 ? "connected" : "";
}

sockaddr_un unix_address(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    return address;
}

std::string answered(long result, const std::string& what) { return result >= 0 ? what : ""; }

// Every name in /proc that is another process.
std::string others() {
    std::string found;
    if (DIR* const folder = ::opendir("/proc")) {
        while (const dirent* const entry = ::readdir(folder))
            if (const long pid = std::atol(entry->d_name); pid > 0 && pid != ::getpid())
                found += std::string(found.empty() ? "" : " ") + entry->d_name;
        ::closedir(folder);
    }
    return found.empty() ? "" : "processes " + found;
}

// From every folder that is open, upwards to the host's files.
std::string climb(const Facts& facts) {
    for (int fd = 0; fd < 4096; ++fd) {
        struct stat info {};
        if (::fstat(fd, &info) < 0 || !S_ISDIR(info.st_mode))
            continue;
        const std::string up = "../../../../../../../../../../../.." + of(facts, "SECRET");
        if (const int file = ::openat(fd, up.c_str(), O_RDONLY); file >= 0)
            return "opened " + of(facts, "SECRET");
    }
    return "";
}

// The files of the store that this process was given, opened anew for writing, or with other rights for all.
std::string reopen() {
    for (int fd = 3; fd < 4096; ++fd) {
        struct stat info {};
        if (::fstat(fd, &info) < 0 || !S_ISREG(info.st_mode) || info.st_nlink == 0)
            continue;
        if (::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR) >= 0)
            return "opened a piece for writing";
        if (::fchmod(fd, 0) == 0)
            return "took everybody's rights to a piece";
    }
    return "";
}

std::string become_program() {
    char* const words[] = {const_cast<char*>("/bin/true"), nullptr};
    ::execve(words[0], words, nullptr);
    return "";
}

std::string run_memory() {
    const int file = ::memfd_create("program", 0);
    char* const words[] = {const_cast<char*>("x"), nullptr};
    ::syscall(SYS_execveat, file, "", words, nullptr, AT_EMPTY_PATH);
    return "";
}

std::string packet_socket() { return answered(::socket(AF_PACKET, SOCK_RAW, 0), "a packet socket"); }

std::string front(const Facts& facts) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(number(facts, "FRONT")));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return fd >= 0 && ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0
               ? "connected to the front"
               : "";
}

struct Abstract {
    explicit Abstract(const std::string& name) : bytes(offsetof(sockaddr_un, sun_path) + 1 + name.size()) {
        address.sun_family = AF_UNIX;
        name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
    }
    sockaddr_un address{};
    socklen_t bytes;
};

std::string abstract(const std::string& name) {
    const Abstract at(name);
    return connected(at.address, at.bytes);
}

std::string send_to_abstract(const std::string& name) {
    const Abstract at(name);
    const int fd = ::socket(AF_UNIX, SOCK_DGRAM, 0);
    return fd >= 0 && ::sendto(fd, "x", 1, 0, reinterpret_cast<const sockaddr*>(&at.address), at.bytes) == 1 ? "sent"
                                                                                                             : "";
}

std::string asked_port(long port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
    char answer = 0; // or an error, if nobody is there
    return fd >= 0 && ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
                   ::send(fd, "x", 1, 0) == 1 && ::recv(fd, &answer, 1, 0) == 1
               ? "answered"
               : "";
}

// Who else is in the network namespace.
std::string names_of(const Facts& facts) {
    const std::string neighbour = of(facts, "NEIGHBOUR");
    if (neighbour.empty())
        return "";
    for (const char* const path : {"/proc/net/unix", "/proc/self/net/unix", "/proc/thread-self/net/unix"}) {
        std::ifstream file(path);
        for (std::string line; std::getline(file, line);)
            if (line.find(neighbour) != line.npos)
                return line;
    }
    return "";
}

// With it up, processes in one network namespace would reach one another.
std::string raise_loopback() {
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP;
    return answered(::ioctl(::socket(AF_INET, SOCK_DGRAM, 0), SIOCSIFFLAGS, &request), "loopback is up");
}

std::string read_memory(const Facts& facts) {
    char byte = 0;
    iovec ours{&byte, 1}, theirs{reinterpret_cast<void*>(0x400000), 1};
    return answered(::process_vm_readv(static_cast<pid_t>(number(facts, "VICTIM")), &ours, 1, &theirs, 1, 0),
                    "read another's memory");
}

std::string capabilities() {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2] = {{1u << CAP_SYS_ADMIN, 1u << CAP_SYS_ADMIN, 0}, {0, 0, 0}};
    return answered(::syscall(SYS_capset, &header, data), "CAP_SYS_ADMIN");
}

std::string held_capabilities() {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2] = {};
    if (::syscall(SYS_capget, &header, data) == 0 &&
        (data[0].effective | data[0].permitted | data[1].effective | data[1].permitted) != 0)
        return "capabilities";
    return "";
}

std::string clone_process() {
    const long child = ::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
    if (child == 0)
        ::_exit(0);
    return answered(child, "a process");
}

std::string write_anywhere() {
    for (const char* const folder : {"/", "/tmp", "/etc", "/var/tmp", "/dev/shm", "/root", "/usr/lib", "/dev"})
        if (const std::string reached = opened(std::string(folder) + "/left-behind", O_CREAT | O_WRONLY);
            !reached.empty())
            return reached;
    return "";
}

std::map<std::string, Attack> make_all() {
    std::map<std::string, Attack> all;
    // the daemon's own files
    all["admin-socket"] = [](const Facts& f) {
        return connected(unix_address(of(f, "STORE") + "/admin.sock"), sizeof(sockaddr_un));
    };
    all["store-read"] = [](const Facts& f) { return opened(of(f, "STORE") + "/index.sqlite", O_RDONLY); };
    all["store-list"] = [](const Facts& f) { return opened(of(f, "STORE"), O_RDONLY | O_DIRECTORY); };
    all["store-write"] = [](const Facts& f) { return opened(of(f, "STORE") + "/left-behind", O_CREAT | O_WRONLY); };
    all["cache-list"] = [](const Facts& f) { return opened(of(f, "CACHE"), O_RDONLY | O_DIRECTORY); };
    all["cache-write"] = [](const Facts& f) {
        return opened(of(f, "CACHE") + "/left-behind.kept", O_CREAT | O_WRONLY);
    };
    all["pieces-changed"] = [](const Facts&) { return reopen(); };
    // the host's files
    all["secret"] = [](const Facts& f) { return opened(of(f, "SECRET"), O_RDONLY); };
    all["climb"] = climb;
    all["write-anywhere"] = [](const Facts&) { return write_anywhere(); };
    all["kvm-anew"] = [](const Facts&) { return opened("/dev/kvm", O_RDWR); };
    all["device-node"] = [](const Facts&) {
        return answered(::mknod("/tmp/disk", S_IFBLK | 0600, makedev(8, 0)), "a device");
    };
    all["handle"] = [](const Facts&) {
        std::array<unsigned char, 64> handle{16};
        return answered(::syscall(SYS_open_by_handle_at, AT_FDCWD, handle.data(), O_RDONLY), "a file by its handle");
    };
    all["sysctl"] = [](const Facts&) { return opened("/proc/sys/kernel/core_pattern", O_WRONLY); };
    all["sysrq"] = [](const Facts&) { return opened("/proc/sysrq-trigger", O_WRONLY); };
    // other processes
    all["proc-others"] = [](const Facts&) { return others(); };
    all["proc-memory"] = [](const Facts& f) { return opened("/proc/" + of(f, "VICTIM") + "/mem", O_RDWR); };
    all["ptrace"] = [](const Facts& f) {
        return answered(::ptrace(PTRACE_ATTACH, static_cast<pid_t>(number(f, "VICTIM")), nullptr, nullptr),
                        "traces another function");
    };
    all["read-memory"] = read_memory;
    all["kill-daemon"] = [](const Facts& f) {
        return answered(::kill(static_cast<pid_t>(number(f, "DAEMON")), 0), "may kill the daemon");
    };
    all["signal-thread"] = [](const Facts& f) {
        return answered(::syscall(SYS_tgkill, number(f, "DAEMON"), number(f, "DAEMON"), 0), "may signal the daemon");
    };
    all["pidfd"] = [](const Facts& f) {
        return answered(::syscall(SYS_pidfd_open, number(f, "DAEMON"), 0), "a pidfd of the daemon");
    };
    all["limits-of-others"] = [](const Facts& f) {
        return answered(::syscall(SYS_prlimit64, number(f, "VICTIM"), RLIMIT_NOFILE, nullptr, nullptr),
                        "another's limits");
    };
    all["nice-others"] = [](const Facts& f) {
        cpu_set_t set;
        return answered(::sched_getaffinity(static_cast<pid_t>(number(f, "VICTIM")), sizeof(set), &set),
                        "another's CPUs");
    };
    // new programs and processes
    all["execve"] = [](const Facts&) { return become_program(); };
    all["execveat"] = [](const Facts&) { return run_memory(); };
    all["fork"] = [](const Facts&) { return clone_process(); };
    all["vfork"] = [](const Facts&) {
        const long child = ::syscall(SYS_fork);
        if (child == 0)
            ::_exit(0);
        return answered(child, "a process");
    };
    all["clone3"] = [](const Facts&) {
        std::array<unsigned long long, 11> arguments{};
        arguments[4] = SIGCHLD;
        const long child = ::syscall(SYS_clone3, arguments.data(), sizeof(arguments));
        if (child == 0)
            ::_exit(0);
        return answered(child, "a process");
    };
    // rights
    all["user-namespace"] = [](const Facts&) { return answered(::unshare(CLONE_NEWUSER), "a user namespace"); };
    all["mount-namespace"] = [](const Facts&) { return answered(::unshare(CLONE_NEWNS), "a mount namespace"); };
    all["setns"] = [](const Facts&) {
        return answered(::setns(::open("/proc/1/ns/mnt", O_RDONLY), 0), "another namespace");
    };
    all["mount"] = [](const Facts&) { return answered(::mount("tmpfs", "/proc", "tmpfs", 0, nullptr), "mounted"); };
    all["remount"] = [](const Facts&) {
        return answered(::mount(nullptr, "/", nullptr, MS_REMOUNT | MS_BIND, nullptr), "remounted / writable");
    };
    all["umount"] = [](const Facts&) { return answered(::umount2("/", MNT_DETACH), "unmounted"); };
    all["chroot"] = [](const Facts&) { return answered(::chroot("/proc"), "chroot"); };
    all["setuid"] = [](const Facts&) { return answered(::syscall(SYS_setuid, 0), "root"); };
    all["capset"] = [](const Facts&) { return capabilities(); };
    all["capget"] = [](const Facts&) { return held_capabilities(); };
    all["personality"] = [](const Facts&) { return answered(::syscall(SYS_personality, 0xffffffff), "personality"); };
    // parts of the kernel that have had many faults
    all["io-uring"] = [](const Facts&) {
        std::array<unsigned char, 120> parameters{};
        return answered(::syscall(SYS_io_uring_setup, 1, parameters.data()), "io_uring");
    };
    all["userfaultfd"] = [](const Facts&) { return answered(::syscall(SYS_userfaultfd, 0), "userfaultfd"); };
    all["bpf"] = [](const Facts&) {
        std::array<unsigned char, 128> attributes{};
        attributes[0] = 1;
        return answered(::syscall(SYS_bpf, 0, attributes.data(), 72), "bpf");
    };
    all["keyctl"] = [](const Facts&) { return answered(::syscall(SYS_keyctl, 0, -3, 1), "a keyring"); };
    all["add-key"] = [](const Facts&) { return answered(::syscall(SYS_add_key, "user", "k", "v", 1, -3), "a key"); };
    all["perf"] = [](const Facts&) {
        std::array<unsigned char, 128> attributes{};
        return answered(::syscall(SYS_perf_event_open, attributes.data(), 0, -1, -1, 0), "perf");
    };
    all["module"] = [](const Facts&) { return answered(::syscall(SYS_finit_module, 0, "", 0), "a module"); };
    all["kexec"] = [](const Facts&) { return answered(::syscall(SYS_kexec_load, 0, 0, nullptr, 0), "another kernel"); };
    all["clock"] = [](const Facts&) {
        timespec now{};
        ::clock_gettime(CLOCK_REALTIME, &now);
        return answered(::clock_settime(CLOCK_REALTIME, &now), "the clock");
    };
    // the network and IPC; the function has no permission for either
    all["front"] = front;
    all["abstract-socket"] = [](const Facts& facts) { return abstract(of(facts, "ABSTRACT")); };
    // what listens in the network namespace of another function
    all["neighbour"] = [](const Facts& facts) { return abstract(of(facts, "NEIGHBOUR")); };
    all["neighbour-message"] = [](const Facts& facts) {
        return send_to_abstract(of(facts, "NEIGHBOUR") + "-messages");
    };
    all["neighbour-port"] = [](const Facts& facts) { return asked_port(number(facts, "NEIGHBOUR_PORT")); };
    all["neighbour-names"] = names_of;
    all["neighbour-loopback"] = [](const Facts&) { return raise_loopback(); };
    all["packet-socket"] = [](const Facts&) { return packet_socket(); };
    all["vsock"] = [](const Facts&) { return answered(::socket(AF_VSOCK, SOCK_STREAM, 0), "a vsock"); };
    all["alg-socket"] = [](const Facts&) { return answered(::socket(AF_ALG, SOCK_SEQPACKET, 0), "AF_ALG"); };
    all["shared-memory"] = [](const Facts&) {
        return answered(::syscall(SYS_shmget, 1, 4096, 0), "shared memory of others");
    };
    all["message-queue"] = [](const Facts&) {
        return answered(::syscall(SYS_mq_open, "q", O_CREAT | O_RDWR, 0600, nullptr), "a queue");
    };
    return all;
}

} // namespace

const std::map<std::string, Attack>& all() {
    static const std::map<std::string, Attack> attacks = make_all();
    return attacks;
}

} // namespace attacks
