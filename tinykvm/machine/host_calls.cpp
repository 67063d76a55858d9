// Host calls of the guest kernel. Calls on files and the like are in tinykvm/linux, memory calls in memory_calls.cpp.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <asm/unistd_64.h>
#include <fmt/format.h>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/path_text.hpp"
#include "tinykvm/elf/symbols.hpp"
#include "tinykvm/linux/call.hpp"
#include "tinykvm/machine/machine.hpp"
#include "tinykvm/machine/single_process.hpp"

namespace tinykvm {
namespace {

constexpr std::uint32_t kRefusedNote = 1u << 31;               // in logged_: a refused call, not a missing one
constexpr std::uint32_t kFollowedNote = kRefusedNote | 0xffff; // a fork that was followed

const char* signal_name(int signal) {
    switch (signal) {
    case 4: return "SIGILL";
    case 5: return "SIGTRAP";
    case 6: return "SIGABRT";
    case 7: return "SIGBUS";
    case 8: return "SIGFPE";
    case 9: return "SIGKILL";
    case 11: return "SIGSEGV";
    case 13: return "SIGPIPE";
    case 14: return "SIGALRM";
    case 15: return "SIGTERM";
    default: return "signal";
    }
}

std::int64_t handle_path(const HandleTable& handles, AddressSpace& space, const abi::HostCall& call) {
    const Handle* handle = handles.find(static_cast<std::int32_t>(call.arg[0]));
    if (!handle)
        return -EBADF;
    const std::string& path = handle->info.path;
    const std::size_t bytes = std::min<std::size_t>(path.size(), call.arg[2]);
    if (!space.write(GuestVirt(call.arg[1]), std::as_bytes(std::span(path)).first(bytes)))
        return -EFAULT;
    return static_cast<std::int64_t>(bytes);
}

// /proc/self/maps as Linux writes it (fs/proc/task_mmu.c, show_map_vma). Device and inode are unknown and shown as 0.
std::string maps_text(const AddressSpace::Regions& regions) {
    std::string out;
    for (const auto& [begin, region] : regions) {
        if (!(region.flags & kRegionUser))
            continue;
        const std::string line = fmt::format("{:08x}-{:08x} {}{}{}{} {:08x} 00:00 0 ", begin, region.end,
                                             region.prot & PROT_READ ? 'r' : '-', region.prot & PROT_WRITE ? 'w' : '-',
                                             region.prot & PROT_EXEC ? 'x' : '-',
                                             region.flags & kRegionShared ? 's' : 'p', region.file_offset);
        out += region.name.empty() ? line : fmt::format("{:<73}{}", line, region.name);
        out += '\n';
    }
    return out;
}

} // namespace

// Logs a line once per `what`. Programs repeat such calls in every request, or want to fill the log.
void Machine::log_once(std::uint32_t what, const std::string& line) {
    constexpr std::size_t kMax = 600;
    if (logged_.size() >= kMax || std::find(logged_.begin(), logged_.end(), what) != logged_.end())
        return;
    logged_.push_back(what);
    host_->note(line);
}

ForkMoment Machine::fork_moment(std::uint32_t nr) const {
    if (nr != __NR_fork)
        return ForkMoment::other;
    if (connections_.used())
        return reset_after_connection_ ? ForkMoment::connection : ForkMoment::warm_up;
    return image_ ? ForkMoment::other : listeners_.empty() ? ForkMoment::start : ForkMoment::ready;
}

// The machine's new process number if a fork is followed. 0: the call is refused.
std::int64_t Machine::process_call(const abi::HostCall& call) {
    const auto nr = static_cast<std::uint32_t>(call.arg[0]);
    const ProgramFacts& facts = env_->policy->facts();
    const ForkPolicy policy = env_->options.fork;
    const ForkMoment moment = fork_moment(nr);
    if (follows(policy, moment) ||
        (policy == ForkPolicy::known && children_serve(moment, facts.program, facts.arguments))) {
        log_once(kFollowedNote, followed_fork(moment, facts.program, facts.arguments));
        const std::uint32_t pid = fresh_pid();
        shared_->pid = pid;
        if (space_.has_wipe_on_fork())
            space_.wipe_on_fork();
        child_serves_ |= moment == ForkMoment::connection;
        return pid | (moment == ForkMoment::connection ? abi::kChildServes : 0);
    }
    constexpr std::size_t kShown = 200;
    const bool named = is_execve(nr) && call.arg[1] != 0;
    log_once(kRefusedNote | nr,
             refused_process(nr, facts.program, facts.arguments,
                             named ? space_.load_string(GuestVirt(call.arg[1]), kShown).value : "", moment, policy));
    if (is_execve(nr))
        host_->refused_execve();
    return 0;
}

// Closes the handles that the guest kernel closed since the last exit.
void Machine::close_handles() {
    const std::uint32_t count =
        std::min(std::uint32_t{*static_cast<const volatile std::uint32_t*>(&shared_->close_count)}, std::uint32_t{16});
    for (std::uint32_t i = 0; i < count; ++i)
        handles_.close(*static_cast<const volatile std::int32_t*>(&shared_->closes[i]));
    if (count != 0)
        shared_->close_count = 0;
}

std::optional<Stop> Machine::on_host_call() {
    close_handles();
    space_.begin_call();
    abi::HostCall call;
    std::memcpy(&call, &shared_->call, sizeof(call)); // copied once, so that the checked values are the used ones
    ++exit_reasons_[call.nr < 0x2000 ? call.nr : 0x1fffu];
    same_faults_ = 0; // the program makes progress
    std::int64_t result = -ENOSYS;
    switch (call.nr) {
    case abi::kExit: return Stop{StopKind::exited, static_cast<int>(call.arg[0] & 0xff), {}};
    case abi::kKilled:
        if (env_->on_killed && !env_->options.trial)
            env_->on_killed(*this, static_cast<int>(call.arg[0] & 0x7f), static_cast<int>(call.arg[2]), call.arg[1]);
        return killed(static_cast<int>(call.arg[0] & 0x7f), call.arg[1], static_cast<std::int32_t>(call.arg[2]));
    case abi::kDebugStop:
        if (auto stop = on_debug_call(call, result))
            return stop;
        break;
    case abi::kPanic: {
        const auto text = space_.load_string(GuestVirt(call.arg[0]), 200);
        return broken("guest kernel: " + text.value);
    }
    case abi::kUnknownCall: {
        const auto nr = static_cast<std::uint32_t>(call.arg[0]);
        if (env_->options.verbose)
            log_once(nr, fmt::format("system call {} ({}) is not supported: ENOSYS", call_name(nr), nr));
        result = 0;
        break;
    }
    case abi::kRefused: result = process_call(call); break;
    case abi::kListen:
    case abi::kBindAddress: result = listen_call(call); break;
    case abi::kUnlisten:
        if (call.arg[0] >= abi::kMaxListeners) {
            result = -EINVAL;
            break;
        }
        std::erase_if(listeners_, [&](const ListenerState& l) { return l.id == call.arg[0]; });
        host_->unlisten(static_cast<std::uint32_t>(call.arg[0]));
        result = 0;
        break;
    case abi::kTakeBound: result = take_bound(static_cast<std::uint32_t>(call.arg[0])); break;
    case abi::kConnectNear: result = connect_near(call); break;
    case abi::kHostFunction: return host_function(call);
    case abi::kConnFlush:
        if (call.arg[0] < abi::kMaxConns)
            host_->flush(*this, static_cast<std::uint32_t>(call.arg[0]));
        result = 0;
        break;
    case abi::kPoll:
        host_->poll(*this);
        result = 0;
        break;
    case abi::kTrace:
        trace_call(call);
        result = 0;
        break;
    case abi::kHandlePath: result = handle_path(handles_, space_, call); break;
    default: {
        bool handled = false;
        result = memory_call(call, handled);
        if (handled)
            break;
        if (env_->options.trial && trial_call(call, result))
            break;
        const CallRow* row = find_call(call.nr);
        if (!row) {
            log_once(call.nr, fmt::format("system call {} ({}) is not supported: ENOSYS", call_name(call.nr), call.nr));
            result = -ENOSYS;
            break;
        }
        CallContext context{
            space_, handles_, *env_->policy,
            [this](const std::string& line) {
                if (env_->options.verbose)
                    host_->note(line);
            },
            SelfFacts{shared_->pid, [this] { return maps_text(space_.regions()); }, [this] { return self_numbers(); }}};
        context.output = host_->output();
        CallArgs args;
        args.nr = call.nr;
        std::copy(std::begin(call.arg), std::end(call.arg), args.arg.begin());
        result = row->handler(context, args);
        if (!context.lacking.empty())
            host_->refused(context.lacking);
        after_file_call(call, result);
        if (result == -abi::kOwnPath)
            result = tell_own_path(context.own_path);
        break;
    }
    }
    shared_->call.result = result;
    return std::nullopt;
}

// The address comes from the guest kernel. If it is wrong, the program harms only itself.
std::int64_t Machine::tell_own_path(const std::string& path) {
    const std::uint64_t at = *static_cast<const volatile std::uint64_t*>(&shared_->own_path_at);
    if (path.size() >= abi::kOwnPathBytes)
        return -ENAMETOOLONG;
    return space_.write(GuestVirt(at), std::as_bytes(std::span(path.c_str(), path.size() + 1))) ? -abi::kOwnPath
                                                                                                : -EFAULT;
}

// In a trial run, calls with an effect outside pretend to succeed, or fail. False: the call is harmless; execute it.
bool Machine::trial_call(const abi::HostCall& call, std::int64_t& result) {
    switch (call.nr) {
    case __NR_pwritev: {
        const Handle* const to = host_->output() ? handles_.find(static_cast<std::int32_t>(call.arg[0])) : nullptr;
        if (to && to->info.kind == HandleKind::stdio)
            return false; // has no effect outside either
        const std::uint64_t count = std::min<std::uint64_t>(call.arg[2], 1024);
        std::uint64_t total = 0;
        for (std::uint64_t i = 0; i < count; ++i)
            if (const auto v = space_.load<iovec>(GuestVirt(call.arg[1] + i * sizeof(iovec))))
                total += v->iov_len;
        result = static_cast<std::int64_t>(std::min<std::uint64_t>(total, 1 << 30));
        return true;
    }
    case __NR_openat:
        if ((call.arg[2] & (O_ACCMODE | O_CREAT | O_TRUNC)) == O_RDONLY)
            return false;
        result = -EACCES;
        return true;
    case __NR_preadv:
    case __NR_fstat:
    case __NR_newfstatat:
    case __NR_statx:
    case __NR_readlinkat:
    case __NR_faccessat:
    case __NR_faccessat2:
    case __NR_getdents64:
    case __NR_getrandom:
    case __NR_getcwd:
    case __NR_ioctl:
    case __NR_fcntl:
    case abi::kRoute:
    case abi::kInterface:
    case __NR_lseek:
    case __NR_statfs:
    case __NR_fstatfs:
    case __NR_memfd_create:
    case abi::kCloseHandle: return false;
    default: result = call.nr == __NR_socket ? -ENETUNREACH : -EACCES; return true;
    }
}

std::string Machine::reason_name(std::uint32_t reason) {
    switch (reason) {
    case kWaits: return "wait";
    case kFaults: return "page fault";
    case kInterrupts: return "tick";
    case abi::kCloseHandle: return "close";
    case abi::kConnFlush: return "flush";
    case abi::kPoll: return "poll host";
    case abi::kConnectNear: return "connect to a machine";
    case abi::kHostFunction: return "function of the host";
    case abi::kUnknownCall: return "unknown call";
    default: return call_name(reason);
    }
}

std::int64_t Machine::listen_call(const abi::HostCall& call) {
    const bool bind = call.nr == abi::kBindAddress;
    const GuestVirt at(call.arg[2]);
    const std::uint64_t bytes = call.arg[3];
    if (bytes < 2 || bytes > 128 || call.arg[0] >= abi::kMaxListeners)
        return -EINVAL;
    ListenerState socket{
        static_cast<std::uint32_t>(call.arg[0]), static_cast<std::uint32_t>(call.arg[1]), {}, call.arg[bind ? 4 : 5]};
    std::vector<std::uint8_t>& address = socket.address;
    address.resize(bytes);
    if (!space_.read(at, std::as_writable_bytes(std::span(address))))
        return -EFAULT;
    if (socket.family == AF_UNIX && bytes > 2 && address[2] != 0)
        return listen_at_path(socket, bind, static_cast<int>(call.arg[4]));
    const auto* sa = reinterpret_cast<const sockaddr*>(address.data());
    const auto local = net_address(sa, static_cast<socklen_t>(bytes));
    const bool source =
        bind && local && local->port == 0 && env_->policy->may_bind_ephemeral(); // the source address of a connect()
    if (!source && !env_->options.listens_near && !env_->policy->may_listen(sa, static_cast<socklen_t>(bytes))) {
        const std::string flag = Policy::net_flag("--allow-listen", sa, static_cast<socklen_t>(bytes));
        host_->note("the program wants to listen: " + flag + " would allow it; refused (EACCES)");
        host_->refused(flag + " would allow it");
        return -EACCES;
    }
    const int result = bind ? host_->bind(socket) : host_->listen(socket, static_cast<int>(call.arg[4]));
    if (result < 0)
        return result;
    address.resize(bytes);
    if (!space_.write(at, std::as_bytes(std::span(address))))
        return -EFAULT;
    if (!bind)
        note_listener(std::move(socket));
    return 0;
}

// A Unix socket with a name in the file system. MachineHost gets the absolute path; the program keeps the path it gave.
std::int64_t Machine::listen_at_path(ListenerState& socket, bool bind, int backlog) {
    const std::vector<std::uint8_t>& asked = socket.address;
    std::string path(reinterpret_cast<const char*>(asked.data()) + 2,
                     ::strnlen(reinterpret_cast<const char*>(asked.data()) + 2, asked.size() - 2));
    if (path.front() != '/') {
        const Handle* cwd = handles_.find(abi::kHandleCwd);
        path = (cwd ? cwd->info.path : "") + "/" + path;
    }
    if (env_->options.listens_near)
        path = plain_path(path); // as connect_near() looks for it
    constexpr std::size_t kLongest = 126 - 2;
    if (path.size() > kLongest)
        return -ENAMETOOLONG;
    if (!env_->options.listens_near) {
        const OpenedPlace place = env_->policy->socket_place(path, {});
        if (place.error != 0) {
            if (!place.refused.empty())
                host_->note("the program wants to listen: " + place.refused + "; refused (EACCES)");
            return -place.error;
        }
    }
    socket.address.resize(2);
    socket.address.insert(socket.address.end(), path.begin(), path.end());
    socket.address.push_back(0);
    const int result = bind ? host_->bind(socket) : host_->listen(socket, backlog);
    if (result == 0 && !bind)
        note_listener(std::move(socket));
    return result;
}

void Machine::note_listener(ListenerState socket) {
    std::erase_if(listeners_, [&](const ListenerState& l) { return l.id == socket.id; });
    if (!(socket.flags & abi::kBindMessages)) // only the machine itself connects to those
        listeners_.push_back(std::move(socket));
}

std::int64_t Machine::take_bound(std::uint32_t id) {
    BoundSocket socket = host_->take_bound(id);
    if (!socket.fd)
        return -ENOENT;
    HandleInfo info;
    info.kind = HandleKind::socket;
    info.flags = O_RDWR;
    socklen_t family_bytes = sizeof(info.family), type_bytes = sizeof(info.type);
    if (::getsockopt(socket.fd.get(), SOL_SOCKET, SO_DOMAIN, &info.family, &family_bytes) != 0 ||
        ::getsockopt(socket.fd.get(), SOL_SOCKET, SO_TYPE, &info.type, &type_bytes) != 0)
        return -errno;
    const bool named = info.family == AF_UNIX;
    const std::int32_t number = handles_.add(std::move(socket.fd), std::move(info));
    if (number >= 0 && named)
        handles_.set_name(number, std::move(socket.name));
    return number;
}

// Opens the file of a region, for symbols in a crash report. The program or a snapshot chose the name, so the file must
// be open already or readable by the policy, and it must be a regular file.
UniqueFd Machine::open_for_report(const Region& region) const {
    const auto regular = [](int fd) {
        struct stat info {};
        return ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    };
    if (region.file && region.file->fd && !region.file->memory)
        return UniqueFd(regular(region.file->fd.get()) ? ::fcntl(region.file->fd.get(), F_DUPFD_CLOEXEC, 0) : -1);
    const OpenedPath seen = env_->policy->open(region.name, O_PATH | O_NOFOLLOW, 0, {});
    if (seen.error != 0 || seen.synthetic || seen.stdio || !seen.fd || !regular(seen.fd.get()))
        return UniqueFd();
    OpenedPath opened = env_->policy->open(region.name, O_RDONLY | O_NOFOLLOW, 0, {});
    if (opened.error != 0 || opened.synthetic || opened.stdio || !opened.fd || !regular(opened.fd.get()))
        return UniqueFd();
    return std::move(opened.fd);
}

std::string Machine::describe_address(std::uint64_t address) const {
    const auto& regions = space_.regions();
    auto it = regions.upper_bound(address);
    if (it == regions.begin())
        return "(not mapped)";
    --it;
    if (address >= it->second.end)
        return "(not mapped)";
    const std::string& name = it->second.name;
    if (!name.starts_with('/'))
        return name.empty() ? "(anonymous memory)" : "(" + name + ")";
    // The file's load base: the begin of its lowest region, which is right for the usual layouts.
    std::uint64_t base = it->first;
    for (const auto& [begin, region] : regions)
        if (region.name == name) {
            base = begin;
            break;
        }
    std::uint64_t relative = address - base;
    if (base < 0x10000000) // ET_EXEC: symbols are absolute
        relative = address;
    const UniqueFd file = open_for_report(it->second);
    if (const auto symbol = file ? nearest_symbol(file.get(), relative) : std::nullopt)
        return fmt::format("({}+{:#x} in {})", symbol->name, symbol->offset, name);
    return fmt::format("({}+{:#x})", name, relative);
}

Stop Machine::killed(int signal, std::uint64_t address, std::int32_t code) {
    const abi::Shared& s = *shared_;
    std::string report = fmt::format("killed by {} ({})", signal_name(signal), signal);
    const bool fault = signal == 11 || signal == 7 || signal == 4 || signal == 8;
    if (fault && code > 0)
        report += fmt::format(" at address {:#x}", address);
    report += fmt::format("; rip {:#x} {}", s.crash_rip, describe_address(s.crash_rip));
    static constexpr const char* names[15] = {"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8",
                                              "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};
    report += fmt::format("; rsp {:#x} rflags {:#x}", s.crash_rsp, s.crash_rflags);
    for (int i = 0; i < 15; ++i)
        report += fmt::format(" {} {:#x}", names[i], s.crash_regs[i]);
    return Stop{StopKind::killed, signal, report};
}

void Machine::trace_call(const abi::HostCall& call) {
    const auto result = static_cast<std::int64_t>(call.arg[1]);
    host_->note(fmt::format("[{}] {}({:#x}, {:#x}, {:#x}) = {}", call.arg[5],
                            call_name(static_cast<std::uint32_t>(call.arg[0])), call.arg[2], call.arg[3], call.arg[4],
                            result > 0xffff || result < -4095 ? fmt::format("{:#x}", static_cast<std::uint64_t>(result))
                                                              : std::to_string(result)));
}

} // namespace tinykvm
