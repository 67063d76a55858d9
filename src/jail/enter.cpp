#include "src/jail/enter.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <linux/capability.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>

#include "src/jail/landlock.hpp"
#include "src/jail/mount_calls.hpp"
#include "src/jail/own_root.hpp"
#include "src/jail/system_calls.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::jail {

using tinykvm::throw_errno;
using tinykvm::UniqueFd;

namespace {

// Users that no system gives away: systemd's "Users, Groups, UIDs and GIDs on systemd Systems" leaves 0x70000000 to 0x7fffffff alone. Process
// numbers are below 2^22.
constexpr unsigned kFirstUser = 0x70000000;
constexpr rlim_t kMostThreads = 4096; // of the user, which is this process

// By the host's procfs, which is still there: our number as the host sees it.
unsigned number_outside() {
    char text[32] = "";
    const ssize_t bytes = ::readlink("/proc/self", text, sizeof(text) - 1);
    unsigned number = 0;
    std::from_chars(text, text + (bytes > 0 ? bytes : 0), number);
    return number;
}

// The loopback interface of a new network namespace is down.
void set_loopback_up() {
    const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP;
    (void)::ioctl(socket.get(), SIOCSIFFLAGS, &request);
}

int wait_for_end(void*) {
    for (;;)
        ::pause();
}

// A user namespace in which `user` is who root is outside, so that files of root's are that user's (mount_setattr(2), ID-mapped mounts).
UniqueFd make_user_map(int proc, unsigned user) {
    constexpr std::size_t kStackBytes = 16 << 10;
    const auto stack = std::make_unique<std::byte[]>(kStackBytes);
    const pid_t child = ::clone(wait_for_end, stack.get() + kStackBytes, CLONE_NEWUSER | SIGCHLD, nullptr);
    if (child < 0)
        return {};
    const std::string map = fmt::format("0 {} 1", user);
    UniqueFd made;
    bool written = true;
    for (const char* const name : {"uid_map", "gid_map"}) {
        const UniqueFd file(::openat(proc, fmt::format("{}/{}", child, name).c_str(), O_WRONLY | O_CLOEXEC));
        written = written && file && ::write(file.get(), map.data(), map.size()) == static_cast<ssize_t>(map.size());
    }
    if (written)
        made.reset(::openat(proc, fmt::format("{}/ns/user", child).c_str(), O_RDONLY | O_CLOEXEC));
    const int error = errno;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    errno = error;
    return made;
}

bool limit(int resource, rlim_t most) {
    rlimit now{};
    if (::getrlimit(static_cast<__rlimit_resource>(resource), &now) < 0)
        return false;
    const rlimit wanted{std::min(now.rlim_cur, most), std::min(now.rlim_max, most)};
    return ::setrlimit(static_cast<__rlimit_resource>(resource), &wanted) == 0;
}

// Those that could come back with another program or user.
bool drop_bounding_set() {
    for (int capability = 0; ::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0; ++capability) {
    }
    return errno == EINVAL; // there are no more
}

bool drop_capabilities() {
    if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return false;
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    const __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3]{};
    return ::syscall(SYS_capset, &header, none) == 0;
}

} // namespace

Jail::Jail(Mode mode, bool apart) : mode_(mode), apart_(apart) {
    if (mode_ == Mode::off)
        return;
    user_namespace_ = apart && [] {
        // In the first user namespace ids are mapped one to one, all of them (user_namespaces(7)).
        char map[64] = "";
        const UniqueFd file(::open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC));
        unsigned long long inside = 0, outside = 0, count = 0;
        return ::read(file.get(), map, sizeof(map) - 1) > 0 && std::sscanf(map, "%llu %llu %llu", &inside, &outside, &count) == 3 &&
               count == 1;
    }();
    system_calls_.emplace();
    give_up_ahead();
    if (!apart_)
        return;
    // One that may return to the host's network needs rights there.
    if (!user_namespace_) {
        network_.reset(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
        if (network_ && ::unshare(CLONE_NEWNET) < 0)
            network_.reset();
        else if (network_)
            set_loopback_up();
    }
    static const char* const kProcOptions[] = {"subset", "pid", "hidepid", "invisible", nullptr};
    static const char* const kPlainOptions[] = {nullptr};
    proc_ = make_file_system("proc", kProcOptions, kNoSetuid | kNoDevices);
    if (!proc_) // `subset` is of Linux 5.8
        proc_ = make_file_system("proc", kPlainOptions, kNoSetuid | kNoDevices);
    if (!proc_ || user_namespace_ || ::geteuid() != 0)
        return;
    if (const unsigned number = number_outside(); number != 0) {
        user_ = kFirstUser + number;
        if (user_map_ = make_user_map(proc_.get(), user_); !user_map_)
            user_ = 0;
    }
}

void Jail::miss(Wall wall, const std::string& what) {
    missing_.push_back({wall, fmt::format("{}: {}", what, std::strerror(errno))});
}

void Jail::own_file_system(const Plan& plan) {
    OwnRoot root(plan);
    if (apart_) {
        if (user_ != 0 && !root.can_map(user_map_.get())) {
            miss(Wall::user, "files that it may write to lie where ids cannot be mapped");
            user_ = 0;
        }
        std::string failed;
        if (!root.enter(user_ == 0 ? -1 : user_map_.get(), proc_.get(), failed)) {
            miss(Wall::mounts, failed);
            // Half of it may be done: what is there now is not what the program would find.
            throw tinykvm::UserError(tinykvm::ExitCode::not_permitted,
                                     fmt::format("its jail cannot be made: {}; --jail=off does without one", text_of(missing_)));
        }
    } else {
        errno = EPERM;
        miss(Wall::mounts, "no namespaces");
    }
    if (!restrict_paths(root.shown(), !plan.network))
        miss(Wall::landlock, "landlock_create_ruleset");
}

// What neither KVM nor mounting needs.
void Jail::give_up_ahead() {
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        miss(Wall::capabilities, "no_new_privs");
    if (!limit(RLIMIT_CORE, 0))
        miss(Wall::limits, "setrlimit");
    if (::geteuid() == 0 && !drop_bounding_set()) // root of this user namespace
        miss(Wall::capabilities, "PR_CAPBSET_DROP");
}

void Jail::drop_rights() {
    if (user_ != 0 && !limit(RLIMIT_NPROC, kMostThreads))
        miss(Wall::limits, "setrlimit");
    if (user_ != 0 && (::setgroups(0, nullptr) < 0 || ::setresgid(user_, user_, user_) < 0 || ::setresuid(user_, user_, user_) < 0))
        miss(Wall::user, "setresuid");
    else if (user_ == 0 && !user_namespace_ && std::ranges::find(missing_, Wall::user, &Missing::wall) == missing_.end())
        missing_.push_back({Wall::user, ::geteuid() == 0 && apart_ ? "this host maps no ids of mounts" : "no namespaces"});
    if (!drop_capabilities())
        miss(Wall::capabilities, "capset");
    ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

void Jail::enter(const Plan& plan) {
    if (mode_ == Mode::off)
        return;
    if (!apart_) {
        errno = EPERM;
        for (const Wall wall : {Wall::processes, Wall::ipc})
            miss(wall, "no namespaces");
    }
    if (plan.network && network_ && ::setns(network_.get(), CLONE_NEWNET) < 0)
        throw_errno("setns to the host's network");
    if (!plan.network && !network_) {
        if (::unshare(CLONE_NEWNET) < 0)
            miss(Wall::network, "unshare");
        else
            set_loopback_up();
    }
    network_.reset();
    own_file_system(plan);
    drop_rights();
    proc_.reset();
    user_map_.reset();
    if (!system_calls_->restrict())
        miss(Wall::system_calls, "seccomp");
    if (mode_ == Mode::strict && !missing_.empty())
        throw tinykvm::UserError(tinykvm::ExitCode::not_permitted,
                                 fmt::format("--jail=strict: this host lacks walls: {}; kvmserver doctor says more", text_of(missing_)));
}

} // namespace kvmserver::jail
