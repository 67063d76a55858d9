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

// User ids that no system assigns: systemd's "Users, Groups, UIDs and GIDs on systemd Systems" leaves 0x70000000 to
// 0x7fffffff unused. Process numbers, which are added to it, are below 2^22.
constexpr unsigned kFirstUser = 0x70000000;
constexpr rlim_t kMaxThreads = 4096; // of the user, which only this process has

// Our PID as the host sees it, read from the host's procfs, which is still mounted.
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

// In its parent's memory, and with its thread-local variables: it must write to none of them, such as errno.
int wait_for_end(void*) {
    for (;;)
        ::syscall(SYS_pause); // no signal that has a handler is sent to it, so that it does not return
}

bool write_text(const char* path, const std::string& text) {
    const UniqueFd file(::open(path, O_WRONLY | O_CLOEXEC));
    return file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// The initial user namespace maps all ids one to one; ours map a single id (user_namespaces(7)).
bool in_user_namespace() {
    char map[64] = "";
    const UniqueFd file(::open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC));
    unsigned long long inside = 0, outside = 0, count = 0;
    return ::read(file.get(), map, sizeof(map) - 1) > 0 &&
           std::sscanf(map, "%llu %llu %llu", &inside, &outside, &count) == 3 && count == 1;
}

// ThreadSanitizer assumes that who shares memory is a thread that it knows. (spawn.cpp's child runs while we wait.)
#ifdef KVMSERVER_SANITIZED
constexpr int kSharedMemory = 0;
#else
constexpr int kSharedMemory = CLONE_VM;
#endif

// A user namespace that maps root's files to `user`, for ID-mapped mounts (mount_setattr(2)).
UniqueFd make_user_map(int proc, unsigned user) {
    constexpr std::size_t kStackBytes = 16 << 10;
    const auto stack = std::make_unique<std::byte[]>(kStackBytes);
    // It shares our memory. A copy would wait for the locks of all mapped files: 10 to 110 ms beside thousands of such
    // processes.
    const pid_t child =
        ::clone(wait_for_end, stack.get() + kStackBytes, CLONE_NEWUSER | kSharedMemory | SIGCHLD, nullptr);
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

// Drops capabilities that another program or user could bring back.
bool drop_bounding_set() {
    for (int capability = 0;; ++capability) {
        const int has = ::prctl(PR_CAPBSET_READ, capability, 0, 0, 0);
        if (has < 0)
            return errno == EINVAL; // past the last capability
        if (has > 0 && ::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0)
            return false;
    }
}

// Drops all capabilities except those in the bit mask `kept`.
bool drop_capabilities(std::uint32_t kept) {
    if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return false;
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct rights[_LINUX_CAPABILITY_U32S_3]{};
    if (::syscall(SYS_capget, &header, rights) < 0)
        return false;
    const std::uint32_t left = rights[0].permitted & kept;
    rights[0] = {left, left, 0};
    rights[1] = {};
    return ::syscall(SYS_capset, &header, rights) == 0;
}

// Rights that root keeps within what the plan shows: files of other users, low ports.
constexpr std::uint32_t kRightsOfRoot = 1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH |
                                        1u << CAP_FOWNER | 1u << CAP_FSETID | 1u << CAP_NET_BIND_SERVICE;

} // namespace

Jail::Jail(Mode mode, Namespaces namespaces, UniqueFd hosts_network)
    : mode_(mode), namespaces_(namespaces), shares_network_(hosts_network), network_(std::move(hosts_network)) {
    if (mode_ == Mode::off)
        return;
    const bool spawned = namespaces_ == Namespaces::spawned;
    user_namespace_ = spawned && in_user_namespace();
    if (namespaces_ == Namespaces::made) {
        system_calls_ = std::async(std::launch::async, [] { return SystemCalls(false); });
    } else { // the process waits for an assignment anyway
        std::promise<SystemCalls> made;
        made.set_value(spawned ? SystemCalls::given() : SystemCalls(false));
        system_calls_ = made.get_future();
    }
    drop_unneeded_rights();
    if (namespaces_ == Namespaces::hosts)
        return;
    // Without a user namespace the process has the rights that it needs to return to the host's network.
    if (spawned && !user_namespace_ && !shares_network_) {
        network_.reset(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
        if (network_ && ::unshare(CLONE_NEWNET) < 0)
            network_.reset();
        else if (network_)
            set_loopback_up();
    }
    UniqueFd processes; // the host's whole procfs
    if (spawned) {
        static const char* const kProcOptions[] = {"subset", "pid", "hidepid", "invisible", nullptr};
        static const char* const kPlainOptions[] = {nullptr};
        proc_ = make_file_system("proc", kProcOptions, kNoSetuid | kNoDevices);
        if (!proc_) // `subset` needs Linux 5.8
            proc_ = make_file_system("proc", kPlainOptions, kNoSetuid | kNoDevices);
    } else {
        processes.reset(::open(kProc, O_PATH | O_DIRECTORY | O_CLOEXEC));
        stays_root_ = ::geteuid() == 0 && mode_ != Mode::strict;
    }
    const int all = spawned ? proc_.get() : processes.get();
    if (all < 0 || user_namespace_ || stays_root_ || ::geteuid() != 0)
        return;
    if (const unsigned number = number_outside(); number != 0) {
        user_ = kFirstUser + number;
        if (user_map_ = make_user_map(all, user_); !user_map_)
            user_ = 0;
    }
}

void Jail::record_missing(Wall wall, const std::string& what) {
    missing_.push_back({wall, fmt::format("{}: {}", what, std::strerror(errno))});
}

void Jail::make_network() {
    shares_network_ = false;
    if (::unshare(CLONE_NEWNET) < 0)
        record_missing(Wall::network, "unshare");
    else
        set_loopback_up();
}

void Jail::choose_network(const Plan& plan) {
    if (plan.network) {
        if (network_ && ::setns(network_.get(), CLONE_NEWNET) < 0)
            throw_errno("setns to the host's network");
        shares_network_ = false;
    } else if (!network_ || (shares_network_ && (plan.own_network || plan.connect))) {
        make_network();
    }
    network_.reset();
}

// For Namespaces::made. Keeps the host's namespaces if new ones cannot be made.
void Jail::make_namespaces() {
    constexpr int kWanted = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS;
    const unsigned number = number_outside(), user = ::geteuid(), group = ::getegid();
    // Root makes no user namespace: without rights it may not even map its own id (CAP_SETFCAP, user_namespaces(7)).
    if (::unshare(kWanted | (user != 0 ? CLONE_NEWUSER : 0)) < 0) {
        for (const int error = errno; const Wall wall : {Wall::mounts, Wall::processes, Wall::ipc}) {
            errno = error;
            record_missing(wall, "unshare");
        }
        namespaces_ = Namespaces::hosts;
        return;
    }
    if (user != 0) {
        user_namespace_ = true;
        // Groups may be mapped only after setgroups is denied, as in spawn().
        if (!write_text("/proc/self/setgroups", "deny") ||
            !write_text("/proc/self/uid_map", fmt::format("{0} {0} 1", user)) ||
            !write_text("/proc/self/gid_map", fmt::format("{0} {0} 1", group)))
            record_missing(Wall::user, "map ids");
        (void)drop_bounding_set();
    }
    proc_ = clone_tree(fmt::format("/proc/{}", number).c_str(), true);
    if (proc_ && !set_attributes(proc_.get(), kNoSetuid | kNoDevices))
        proc_.reset();
}

void Jail::prepare(const std::vector<std::string>& places) {
    if (mode_ == Mode::off || namespaces_ != Namespaces::spawned || !make_receiving())
        return;
    beneath_ = pivot_beneath();
    common_ = CommonRoot::make(places, beneath_.get(), user_ == 0 ? -1 : user_map_.get());
}

void Jail::own_file_system(const Plan& plan) {
    const OwnRoot root(plan);
    if (namespaces_ != Namespaces::hosts) {
        if (user_ != 0 && !root.can_map(user_map_.get())) {
            record_missing(Wall::user, "files that it may write to lie where ids cannot be mapped");
            user_ = 0;
        }
        if (common_ && !common_->serves(root, user_ != 0)) {
            common_.reset();
            if (!CommonRoot::remove(beneath_.get()))
                throw_errno("unmount the root of another jail");
        }
        const char* const proc_at = namespaces_ == Namespaces::made ? kOwnProc : kProc;
        if (std::string failed; !make_private()) {
            record_missing(Wall::mounts, "mount MS_PRIVATE");
        } else if (!root.enter(beneath_.get(), user_ == 0 ? -1 : user_map_.get(), proc_.get(), proc_at,
                               common_ ? &common_->root() : nullptr, failed)) {
            record_missing(Wall::mounts, failed);
            // The root may be half made: the program would not find its files.
            throw tinykvm::UserError(
                tinykvm::ExitCode::not_permitted,
                fmt::format("its jail cannot be made: {}; --jail=off does without one", text_of(missing_)));
        }
    }
    if (!restrict_paths(root, plan.connect)) {
        record_missing(Wall::landlock, "landlock");
        if (shares_network_) // which only Landlock makes safe
            make_network();
    }
    common_.reset();
    beneath_.reset();
}

bool Jail::restrict_paths(const OwnRoot& root, bool connect) {
    std::optional<PathRules> rules = common_ ? common_->take_rules() : std::nullopt;
    const OwnRoot* const has_rules = rules ? &common_->root() : nullptr;
    if (!rules)
        rules = PathRules::make();
    // In a network namespace that others share, /proc/net would show them.
    const auto add_proc = [&] { return shares_network_ || rules->add({kProc, false, true}); };
    return rules &&
           std::ranges::all_of(
               root.shown(),
               [&](const Shown& place) { return (has_rules && has_rules->shows(place)) || rules->add(place); }) &&
           add_proc() && rules->restrict(connect);
}

// Gives up what neither KVM nor mounting needs.
void Jail::drop_unneeded_rights() {
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        record_missing(Wall::capabilities, "no_new_privs");
    if (!limit(RLIMIT_CORE, 0))
        record_missing(Wall::limits, "setrlimit");
    if (::geteuid() == 0 && !drop_bounding_set()) // root, perhaps only of this user namespace
        record_missing(Wall::capabilities, "PR_CAPBSET_DROP");
}

void Jail::drop_rights() {
    if (user_ != 0 && !limit(RLIMIT_NPROC, kMaxThreads))
        record_missing(Wall::limits, "setrlimit");
    if (user_ != 0 &&
        (::setgroups(0, nullptr) < 0 || ::setresgid(user_, user_, user_) < 0 || ::setresuid(user_, user_, user_) < 0))
        record_missing(Wall::user, "setresuid");
    else if (user_ == 0 && !user_namespace_ && !stays_root_ &&
             std::ranges::find(missing_, Wall::user, &Missing::wall) == missing_.end())
        missing_.push_back({Wall::user, ::geteuid() == 0 && namespaces_ != Namespaces::hosts
                                            ? "this host maps no ids of mounts"
                                            : "no namespaces"});
    if (!drop_capabilities(stays_root_ ? kRightsOfRoot : 0))
        record_missing(Wall::capabilities, "capset");
    ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

void Jail::enter(const Plan& plan) {
    if (mode_ == Mode::off)
        return;
    const SystemCalls system_calls = system_calls_.get(); // the thread that computed it has ended
    if (namespaces_ == Namespaces::hosts) {
        errno = EPERM;
        for (const Wall wall : {Wall::mounts, Wall::processes, Wall::ipc})
            record_missing(wall, "no namespaces");
    } else if (namespaces_ == Namespaces::made) {
        make_namespaces();
    }
    choose_network(plan);
    own_file_system(plan);
    drop_rights();
    proc_.reset();
    user_map_.reset();
    if (!system_calls.restrict())
        record_missing(Wall::system_calls, "seccomp");
    if (mode_ == Mode::strict && !missing_.empty())
        throw tinykvm::UserError(
            tinykvm::ExitCode::not_permitted,
            fmt::format("--jail=strict: this host lacks walls: {}; kvmserver doctor says more", text_of(missing_)));
}

} // namespace kvmserver::jail
