// stat, statfs, access and readlink.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/base/path_text.hpp"
#include "tinykvm/linux/arguments.hpp"
#include "tinykvm/linux/handlers.hpp"

namespace tinykvm {

namespace {

// On x86-64, glibc's structs have the kernel's layout.
static_assert(sizeof(struct stat) == 144 && sizeof(struct statx) == 256 && sizeof(struct statfs) == 120);

constexpr unsigned kLinkMode = S_IFLNK | 0777;

struct stat stat_of_link(const std::string& target) {
    struct stat info {};
    info.st_mode = kLinkMode;
    info.st_nlink = 1;
    info.st_size = static_cast<off_t>(target.size());
    info.st_blksize = kPageSize;
    return info;
}

struct statx statx_of_link(const std::string& target) {
    struct statx info {};
    info.stx_mask = STATX_BASIC_STATS;
    info.stx_mode = kLinkMode;
    info.stx_nlink = 1;
    info.stx_size = target.size();
    info.stx_blksize = kPageSize;
    return info;
}

// The inode number of a handle. A machine's private copy of a memory file keeps the number of the image's file.
std::uint64_t inode_of(const CallContext& call, std::int32_t number, std::uint64_t host) {
    const Handle* handle = call.handles.find(number);
    const bool kept = handle && handle->info.kind == HandleKind::memfd && handle->info.identity.ino != 0;
    return kept ? handle->info.identity.ino : host;
}

template <class T>
std::int64_t store_result(CallContext& call, std::uint64_t at, const T& value) {
    return call.memory.store(address_arg(at), value) ? 0 : -EFAULT;
}

} // namespace

std::int64_t call_fstat(CallContext& call, const CallArgs& args) {
    // Works for a lost connection too: it is still a socket.
    const int fd = call.handles.fd(int_arg(args.arg[0]));
    std::int64_t error = 0;
    if (fd < 0) {
        use_handle(call, args.arg[0], error);
        return error;
    }
    struct stat info {};
    if (::fstat(fd, &info) != 0)
        return -errno;
    info.st_ino = inode_of(call, int_arg(args.arg[0]), info.st_ino);
    return store_result(call, args.arg[1], info);
}

std::int64_t call_newfstatat(CallContext& call, const CallArgs& args) {
    const int flags = int_arg(args.arg[3]);
    if (flags & ~(AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH))
        return -EINVAL;
    const AtPath at = at_path(call, args.arg[0], args.arg[1], flags);
    const Target target = look_up(call, "stat", at, !(flags & AT_SYMLINK_NOFOLLOW));
    if (target.error != 0)
        return target.error;
    if (!target.link.empty())
        return store_result(call, args.arg[2], stat_of_link(target.link));
    struct stat info {};
    if (::fstat(target.fd, &info) != 0)
        return -errno;
    if (at.itself)
        info.st_ino = inode_of(call, at.handle, info.st_ino);
    return store_result(call, args.arg[2], info);
}

std::int64_t call_statx(CallContext& call, const CallArgs& args) {
    const int flags = int_arg(args.arg[2]);
    const auto mask = static_cast<std::uint32_t>(args.arg[3]);
    if ((flags & ~(AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH | AT_STATX_SYNC_TYPE)) ||
        (flags & AT_STATX_SYNC_TYPE) == AT_STATX_SYNC_TYPE || (mask & STATX__RESERVED))
        return -EINVAL;
    const AtPath at = at_path(call, args.arg[0], args.arg[1], flags);
    const Target target = look_up(call, "statx", at, !(flags & AT_SYMLINK_NOFOLLOW));
    if (target.error != 0)
        return target.error;
    if (!target.link.empty())
        return store_result(call, args.arg[4], statx_of_link(target.link));
    struct statx info {};
    if (::statx(target.fd, "", AT_EMPTY_PATH | (flags & AT_STATX_SYNC_TYPE), mask, &info) != 0)
        return -errno;
    if (at.itself)
        info.stx_ino = inode_of(call, at.handle, info.stx_ino);
    return store_result(call, args.arg[4], info);
}

std::int64_t call_statfs(CallContext& call, const CallArgs& args) {
    const AtPath at = at_path(call, static_cast<std::uint64_t>(AT_FDCWD), args.arg[0], 0);
    const Target target = look_up(call, "statfs", at, true);
    if (target.error != 0)
        return target.error;
    struct statfs info {};
    if (::fstatfs(target.fd, &info) != 0)
        return -errno;
    return store_result(call, args.arg[1], info);
}

std::int64_t call_fstatfs(CallContext& call, const CallArgs& args) {
    std::int64_t error = 0;
    const Handle* handle = use_handle(call, args.arg[0], error);
    if (!handle)
        return error;
    struct statfs info {};
    if (::fstatfs(handle->file->fd(), &info) != 0)
        return -errno;
    return store_result(call, args.arg[1], info);
}

std::int64_t call_faccessat2(CallContext& call, const CallArgs& args) {
    const int mode = int_arg(args.arg[2]), flags = int_arg(args.arg[3]);
    if ((mode & ~(R_OK | W_OK | X_OK)) || (flags & ~(AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)))
        return -EINVAL;
    const AtPath at = at_path(call, args.arg[0], args.arg[1], flags);
    const Target target = look_up(call, "access", at, !(flags & AT_SYMLINK_NOFOLLOW));
    if (target.error != 0 || mode == F_OK || !target.link.empty())
        return target.error;
    struct stat info {};
    if (::fstat(target.fd, &info) != 0)
        return -errno;
    const bool folder = S_ISDIR(info.st_mode);
    Rights need = 0;
    if (mode & R_OK)
        need |= kRead;
    if (mode & W_OK)
        need |= folder ? kChange : kWrite;
    if (mode & X_OK)
        need |= folder ? kLookup : kExecute;
    if ((need & ~target.rights) != 0) {
        std::string refused;
        call.policy.check(target.path, need, refused);
        return refuse(call, "access", target.path, EACCES, refused);
    }
    return result_of(::faccessat(target.fd, "", mode, AT_EMPTY_PATH | (flags & AT_EACCESS)));
}

std::int64_t call_faccessat(CallContext& call, const CallArgs& args) {
    CallArgs with_flags = args;
    with_flags.arg[3] = 0; // the call has three arguments
    return call_faccessat2(call, with_flags);
}

namespace {

// The path that the symlink `link` with target `text` leads to, computed from the text only.
std::string link_target(const std::string& link, const std::string& text) {
    return (text.starts_with('/') ? std::filesystem::path(text) : std::filesystem::path(link).parent_path() / text)
        .lexically_normal();
}

// Stores an abi::LinkReply: the longest prefix of `path` that contains no links and may be looked up.
void report_plain(CallContext& call, const std::string& path, std::uint64_t reply_at) {
    abi::LinkReply reply{};
    CallContext quiet{call.memory, call.handles, call.policy, [](const std::string&) {}, call.self};
    for (std::size_t end = path.find('/', 1); path.size() > 1 && path.size() <= sizeof(reply.plain);
         end = path.find('/', end + 1)) {
        end = std::min(end, path.size());
        AtPath at;
        at.path = path.substr(0, end);
        const Target target = look_up(quiet, "readlink", at, false);
        struct stat info {};
        if (target.error != 0 || !target.link.empty() || ::fstat(target.fd, &info) != 0 || S_ISLNK(info.st_mode))
            break;
        reply.bytes = static_cast<std::uint32_t>(end);
        if (end == path.size())
            break;
    }
    std::copy_n(path.data(), reply.bytes, reply.plain);
    call.memory.store(address_arg(reply_at), reply); // an optimisation: failure does not matter
}

} // namespace

std::int64_t call_readlinkat(CallContext& call, const CallArgs& args) {
    const std::int32_t room = int_arg(args.arg[3]);
    if (room <= 0)
        return -EINVAL;
    const AtPath at = at_path(call, args.arg[0], args.arg[1], AT_EMPTY_PATH);
    const Target target = look_up(call, "readlink", at, false);
    if (target.error != 0)
        return target.error;
    std::string text = target.link;
    if (text.empty()) {
        struct stat info {};
        if (::fstat(target.fd, &info) != 0)
            return -errno;
        if (!S_ISLNK(info.st_mode))
            return at.itself ? -ENOENT : -EINVAL;
        text.resize(kMaxPath + 1);
        const ssize_t n = ::readlinkat(target.fd, "", text.data(), text.size());
        if (n < 0)
            return -errno;
        text.resize(static_cast<std::size_t>(n));
        if (args.arg[4] != 0 && !at.itself)
            report_plain(call, link_target(at.path, text), args.arg[4]);
    }
    const std::size_t bytes = std::min(text.size(), static_cast<std::size_t>(room));
    if (!call.memory.write(address_arg(args.arg[2]), std::as_bytes(std::span(text.data(), bytes))))
        return -EFAULT;
    return static_cast<std::int64_t>(bytes);
}

} // namespace tinykvm
