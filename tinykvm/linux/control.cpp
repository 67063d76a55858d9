// ioctl, fcntl and locks of host handles, and getrandom.
//
// fcntl locks are taken as open-file-description locks, because classic locks belong to a process, which machines
// share. A lock that would block gives EAGAIN: a machine has one vCPU, which must not sleep on the host for a lock that
// another of its threads may hold.
#include <asm/ioctls.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "tinykvm/linux/arguments.hpp"
#include "tinykvm/linux/handlers.hpp"

namespace tinykvm {

namespace {

// Sizes of the kernel's struct termios and struct winsize.
constexpr std::size_t kTermiosBytes = 36, kWinsizeBytes = 8;

std::int64_t terminal_ioctl(CallContext& call, int fd, unsigned long request, std::size_t bytes, std::uint64_t to) {
    std::array<std::byte, 64> value{};
    if (!::isatty(fd))
        return -ENOTTY;
    if (::ioctl(fd, request, value.data()) != 0)
        return -errno;
    return call.memory.write(address_arg(to), std::span<const std::byte>(value).first(bytes)) ? 0 : -EFAULT;
}

bool is_stream(HandleKind kind) {
    return kind == HandleKind::stdio || kind == HandleKind::device || kind == HandleKind::socket;
}

std::int64_t lock_range(CallContext& call, std::int32_t number, int command, std::uint64_t at) {
    auto wanted = call.memory.load<struct flock>(address_arg(at));
    if (!wanted)
        return -EFAULT;
    // The guest kernel keeps the offset, and has made l_start absolute.
    if (wanted->l_whence == SEEK_CUR)
        return -EINVAL;
    const int fd = call.handles.private_fd(number);
    if (fd < 0)
        return fd;
    wanted->l_pid = 0; // required for open-file-description locks
    if (::fcntl(fd, command, &*wanted) != 0)
        return errno == EACCES ? -EAGAIN : -errno;
    return command != F_OFD_GETLK || call.memory.store(address_arg(at), *wanted) ? 0 : -EFAULT;
}

std::int64_t memfd_seals(CallContext& call, std::int32_t number, const Handle& handle, int command,
                         std::uint64_t seals) {
    if (handle.info.kind != HandleKind::memfd)
        return -EINVAL;
    if (command == F_GET_SEALS)
        return result_of(::fcntl(handle.file->fd(), F_GET_SEALS));
    const int fd = call.handles.private_fd(number);
    return fd < 0 ? fd : result_of(::fcntl(fd, F_ADD_SEALS, int_arg(seals)));
}

} // namespace

std::int64_t call_ioctl(CallContext& call, const CallArgs& args) {
    std::int64_t error = 0;
    const Handle* handle = use_handle(call, args.arg[0], error);
    if (!handle)
        return error;
    if (!is_stream(handle->info.kind))
        return -ENOTTY;
    const int fd = handle->file->fd();
    int pending = 0;
    switch (static_cast<std::uint32_t>(args.arg[1])) {
    case FIONREAD:
        if (::ioctl(fd, FIONREAD, &pending) != 0)
            return -errno;
        return call.memory.store(address_arg(args.arg[2]), pending) ? 0 : -EFAULT;
    case TIOCGWINSZ: return terminal_ioctl(call, fd, TIOCGWINSZ, kWinsizeBytes, args.arg[2]);
    case TCGETS: return terminal_ioctl(call, fd, TCGETS, kTermiosBytes, args.arg[2]);
    case TCSETS:
    case TCSETSW:
    case TCSETSF: return ::isatty(fd) ? -EPERM : -ENOTTY; // the terminal is the user's
    default: return -ENOTTY;
    }
}

std::int64_t call_fcntl(CallContext& call, const CallArgs& args) {
    std::int64_t error = 0;
    const Handle* handle = use_handle(call, args.arg[0], error);
    if (!handle)
        return error;
    const std::int32_t number = int_arg(args.arg[0]);
    const std::uint32_t flags = handle->info.flags;
    switch (const int command = int_arg(args.arg[1])) {
    case F_GETFL: return flags & ~static_cast<std::uint32_t>(O_CREAT | O_EXCL | O_TRUNC | O_NOCTTY | O_CLOEXEC);
    case F_SETFL: {
        const bool append = (args.arg[2] & O_APPEND) != 0;
        if (append != ((flags & O_APPEND) != 0))
            call.handles.set_append(number, append);
        return 0;
    }
    case F_GETLK:
    case F_OFD_GETLK: return lock_range(call, number, F_OFD_GETLK, args.arg[2]);
    case F_SETLK:
    case F_SETLKW:
    case F_OFD_SETLK:
    case F_OFD_SETLKW: return lock_range(call, number, F_OFD_SETLK, args.arg[2]);
    case F_GET_SEALS:
    case F_ADD_SEALS: return memfd_seals(call, number, *handle, command, args.arg[2]);
    default: return -EINVAL;
    }
}

std::int64_t call_flock(CallContext& call, const CallArgs& args) {
    std::int64_t error = 0;
    if (!use_handle(call, args.arg[0], error))
        return error;
    const int operation = int_arg(args.arg[1]);
    const int what = operation & ~LOCK_NB;
    if (what != LOCK_SH && what != LOCK_EX && what != LOCK_UN)
        return -EINVAL;
    const int fd = call.handles.private_fd(int_arg(args.arg[0]));
    return fd < 0 ? fd : result_of(::flock(fd, what | LOCK_NB));
}

std::int64_t call_getrandom(CallContext& call, const CallArgs& args) {
    constexpr std::uint64_t kMax = (1 << 25) - 1; // Linux's limit
    const auto flags = static_cast<std::uint32_t>(args.arg[2]);
    if (flags & ~static_cast<std::uint32_t>(GRND_NONBLOCK | GRND_RANDOM | 4 /* GRND_INSECURE */))
        return -EINVAL;
    const Buffers buffers =
        gather_range(call.memory, address_arg(args.arg[0]), std::min(args.arg[1], kMax), Access::write);
    if (buffers.error != 0)
        return buffers.error;
    std::int64_t done = 0;
    for (const iovec& run : buffers.runs) {
        const ssize_t n = ::getrandom(run.iov_base, run.iov_len, 0);
        if (n < 0)
            return done > 0 ? done : -errno;
        done += n;
        if (static_cast<std::size_t>(n) < run.iov_len)
            break;
    }
    return done;
}

} // namespace tinykvm
