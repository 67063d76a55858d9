// Reading and writing files and streams. Files are accessed at the offset that the guest kernel passes. Streams have no
// offset; a stream that is not ready gives EAGAIN, and the guest kernel waits.
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tinykvm/linux/arguments.hpp"
#include "tinykvm/linux/handlers.hpp"

namespace tinykvm {

namespace {

// A stream moves only what it can, so there is no need to gather more at once.
constexpr std::uint64_t kStreamBytes = 1 << 20;
// PIPE_BUF: after poll reports a pipe as writable, it takes that many bytes without blocking.
constexpr std::uint64_t kPipeBytes = 4096;
// Reads up to this size are gathered without an fstat of the file.
constexpr std::uint64_t kSmallRead = 64 << 10;

bool has_offset(const Handle& handle) {
    return handle.info.kind == HandleKind::file || handle.info.kind == HandleKind::memfd;
}

bool is_regular(int fd) {
    struct stat info {};
    return ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

// The process's stdio is in blocking mode, and others may share it, so it must be polled first.
bool ready(int fd, short events) {
    pollfd item{fd, events, 0};
    return ::poll(&item, 1, 0) > 0;
}

// Limits a read to the bytes that the file has, so that a large buffer is not populated for a small file.
std::uint64_t readable_bytes(int fd, std::uint64_t wanted, std::int64_t offset) {
    struct stat info {};
    if (wanted <= kSmallRead || ::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        return wanted;
    const std::int64_t left = info.st_size > offset ? info.st_size - offset : 0;
    return std::min(wanted, std::max<std::uint64_t>(static_cast<std::uint64_t>(left), kSmallRead));
}

// Calls move(runs, count, done) with up to kMaxIov ranges at a time, until a call moves less than all.
template <class Move>
std::int64_t move_in_pieces(const Buffers& buffers, Move move) {
    std::int64_t done = 0;
    std::size_t at = 0;
    do {
        const std::size_t count = std::min<std::size_t>(buffers.runs.size() - at, kMaxIov);
        std::int64_t bytes = 0;
        for (std::size_t n = 0; n < count; ++n)
            bytes += static_cast<std::int64_t>(buffers.runs[at + n].iov_len);
        const std::int64_t moved = move(buffers.runs.data() + at, static_cast<int>(count), done);
        if (moved < 0)
            return done > 0 ? done : -errno;
        done += moved;
        at += count;
        if (moved < bytes)
            break;
    } while (at < buffers.runs.size());
    return done;
}

struct Transfer {
    const Handle* handle = nullptr;
    Vector vector;
    std::int64_t offset = -1;
    std::int64_t error = 0;
};

Transfer start_transfer(CallContext& call, const CallArgs& args) {
    Transfer transfer;
    transfer.handle = use_handle(call, args.arg[0], transfer.error);
    if (!transfer.handle)
        return transfer;
    transfer.offset = static_cast<std::int64_t>(args.arg[3]);
    if (transfer.handle->info.kind == HandleKind::directory)
        transfer.error = -EISDIR;
    else if (transfer.handle->info.flags & O_PATH)
        transfer.error = -EBADF;
    // A file may be shared, so its own offset must not be used.
    else if (transfer.offset < -1 || (transfer.offset == -1 && has_offset(*transfer.handle)))
        transfer.error = -EINVAL;
    if (transfer.error == 0) {
        transfer.vector = load_vector(call.memory, address_arg(args.arg[1]), args.arg[2]);
        transfer.error = transfer.vector.error;
    }
    return transfer;
}

// Bytes of holes in [offset, offset+bytes), by whole pages: by so much the file grows when the range is written.
std::uint64_t holes_in(int fd, std::uint64_t offset, std::uint64_t bytes) {
    const auto end = static_cast<off_t>(page_up(offset + bytes));
    std::uint64_t holes = 0;
    for (auto at = static_cast<off_t>(page_down(offset)); at < end;) {
        const off_t data = ::lseek(fd, at, SEEK_DATA), next = data < 0 ? end : std::min(data, end);
        holes += static_cast<std::uint64_t>(next - at);
        const off_t hole = next < end ? ::lseek(fd, next, SEEK_HOLE) : end;
        at = hole < 0 ? end : hole;
    }
    return holes;
}

// The descriptor for a change of a file, or -errno. A memfd of the base is copied first. A memfd must stay within the
// limit if [offset, offset+growth) is filled with data.
int fd_for_change(CallContext& call, std::int32_t number, std::uint64_t offset, std::uint64_t growth) {
    const Handle* handle = call.handles.find(number);
    if (handle->info.kind != HandleKind::memfd)
        return handle->file->fd();
    const int fd = call.handles.private_fd(number);
    if (fd < 0 || growth == 0 || call.handles.memfds_may_grow(growth + 2 * kPageSize))
        return fd;
    constexpr std::uint64_t kMax = std::uint64_t{1} << 62;
    return growth <= kMax && offset <= kMax && call.handles.memfds_may_grow(holes_in(fd, offset, growth)) ? fd
                                                                                                          : -ENOSPC;
}

} // namespace

std::int64_t call_preadv(CallContext& call, const CallArgs& args) {
    const Transfer transfer = start_transfer(call, args);
    if (transfer.error != 0)
        return transfer.error;
    const int fd = transfer.handle->file->fd();
    const std::int64_t offset = transfer.offset;
    if (transfer.handle->info.kind == HandleKind::stdio && !ready(fd, POLLIN))
        return -EAGAIN;
    const std::uint64_t most =
        offset < 0 ? std::min(transfer.vector.bytes, kStreamBytes) : readable_bytes(fd, transfer.vector.bytes, offset);
    const Buffers buffers = gather_vector(call.memory, transfer.vector, Access::write, most, Faults::partial);
    if (buffers.error != 0)
        return buffers.error;
    if (offset < 0)
        return result_of(::readv(fd, buffers.runs.data(), static_cast<int>(std::min(buffers.runs.size(), kMaxIov))));
    return move_in_pieces(buffers, [&](const iovec* runs, int count, std::int64_t done) {
        return ::preadv(fd, runs, count, offset + done);
    });
}

std::int64_t call_pwritev(CallContext& call, const CallArgs& args) {
    const Transfer transfer = start_transfer(call, args);
    if (transfer.error != 0)
        return transfer.error;
    const HandleInfo& info = transfer.handle->info;
    const bool append = (info.flags & O_APPEND) != 0;
    const std::int64_t offset = transfer.offset;
    if (info.synthetic || (info.kind == HandleKind::file && (info.flags & O_ACCMODE) == O_RDONLY))
        return -EBADF;
    std::uint64_t most = offset < 0 ? std::min(transfer.vector.bytes, kStreamBytes) : transfer.vector.bytes;
    const OutputSink* const sink = info.kind == HandleKind::stdio ? call.output : nullptr;
    if (info.kind == HandleKind::stdio && !sink) {
        if (!ready(transfer.handle->file->fd(), POLLOUT))
            return -EAGAIN;
        if (!is_regular(transfer.handle->file->fd()))
            most = std::min(most, kPipeBytes);
    }
    const Buffers buffers = gather_vector(call.memory, transfer.vector, Access::read, most, Faults::partial);
    if (buffers.error != 0)
        return buffers.error;
    if (sink) {
        for (const iovec& run : buffers.runs)
            (*sink)(info.path == "/dev/stderr" ? STDERR_FILENO : STDOUT_FILENO,
                    {static_cast<const char*>(run.iov_base), run.iov_len});
        return static_cast<std::int64_t>(buffers.bytes);
    }
    if (offset < 0)
        return result_of(::writev(transfer.handle->file->fd(), buffers.runs.data(),
                                  static_cast<int>(std::min(buffers.runs.size(), kMaxIov))));
    struct stat info_now {};
    const bool at_end = append && ::fstat(transfer.handle->file->fd(), &info_now) == 0;
    const auto from = static_cast<std::uint64_t>(at_end ? info_now.st_size : offset);
    const int fd = fd_for_change(call, int_arg(args.arg[0]), from, buffers.bytes);
    if (fd < 0)
        return fd;
    return move_in_pieces(buffers, [&](const iovec* runs, int count, std::int64_t done) {
        return ::pwritev2(fd, runs, count, offset + done, append ? RWF_APPEND : 0);
    });
}

std::int64_t call_ftruncate(CallContext& call, const CallArgs& args) {
    std::int64_t error = 0;
    const Handle* handle = use_handle(call, args.arg[0], error);
    if (!handle)
        return error;
    if (!has_offset(*handle))
        return -EINVAL;
    const int fd = fd_for_change(call, int_arg(args.arg[0]), 0, 0);
    if (fd < 0)
        return fd;
    return result_of(::ftruncate(fd, static_cast<off_t>(args.arg[1])));
}

std::int64_t call_truncate(CallContext& call, const CallArgs& args) {
    const AtPath at = at_path(call, static_cast<std::uint64_t>(AT_FDCWD), args.arg[0], 0);
    if (at.error != 0)
        return at.error;
    if (static_cast<std::int64_t>(args.arg[1]) < 0)
        return -EINVAL;
    const OpenedPath opened = call.policy.open(at.path, O_WRONLY, 0, call.self);
    if (opened.error != 0)
        return refuse(call, "truncate", at.path, opened);
    return result_of(::ftruncate(opened.fd.get(), static_cast<off_t>(args.arg[1])));
}

std::int64_t call_fallocate(CallContext& call, const CallArgs& args) {
    std::int64_t error = 0;
    const Handle* handle = use_handle(call, args.arg[0], error);
    if (!handle)
        return error;
    if (!has_offset(*handle))
        return handle->info.kind == HandleKind::directory ? -EISDIR : -ENODEV;
    const auto offset = static_cast<off_t>(args.arg[2]), length = static_cast<off_t>(args.arg[3]);
    if (offset < 0 || length <= 0)
        return -EINVAL;
    const bool cuts = (args.arg[1] & FALLOC_FL_PUNCH_HOLE) != 0;
    const int fd = fd_for_change(call, int_arg(args.arg[0]), args.arg[2], cuts ? 0 : args.arg[3]);
    if (fd < 0)
        return fd;
    return result_of(::fallocate(fd, int_arg(args.arg[1]), offset, length));
}

std::int64_t call_fsync(CallContext& call, const CallArgs& args) {
    std::int64_t error = 0;
    const Handle* handle = use_handle(call, args.arg[0], error);
    return handle ? result_of(::fsync(handle->file->fd())) : error;
}

std::int64_t call_fdatasync(CallContext& call, const CallArgs& args) {
    std::int64_t error = 0;
    const Handle* handle = use_handle(call, args.arg[0], error);
    return handle ? result_of(::fdatasync(handle->file->fd())) : error;
}

std::int64_t call_syncfs(CallContext& call, const CallArgs& args) { return call_fsync(call, args); }

std::int64_t call_sync(CallContext&, const CallArgs&) { return 0; }

// fadvise64, readahead and sync_file_range: hints, which only check the handle.
std::int64_t call_file_hint(CallContext& call, const CallArgs& args) {
    std::int64_t error = 0;
    const Handle* handle = use_handle(call, args.arg[0], error);
    if (!handle)
        return error;
    return has_offset(*handle) || handle->info.kind == HandleKind::directory ? 0 : -ESPIPE;
}

// Only SEEK_DATA and SEEK_HOLE: the guest kernel handles the other seeks itself.
std::int64_t call_lseek(CallContext& call, const CallArgs& args) {
    std::int64_t error = 0;
    const Handle* handle = use_handle(call, args.arg[0], error);
    if (!handle)
        return error;
    const int whence = int_arg(args.arg[2]);
    if (!has_offset(*handle))
        return -ESPIPE;
    if (whence != SEEK_DATA && whence != SEEK_HOLE)
        return -EINVAL;
    return result_of(::lseek(handle->file->fd(), static_cast<off_t>(args.arg[1]), whence));
}

} // namespace tinykvm
