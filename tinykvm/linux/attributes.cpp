// Mode, owner and times of files. All changes need kChange for the path, even through a descriptor.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "tinykvm/linux/arguments.hpp"
#include "tinykvm/linux/handlers.hpp"

namespace tinykvm {

namespace {

// look_up() that also needs kChange.
Target look_up_to_change(CallContext& call, const char* name, const AtPath& at, bool follow) {
    Target target = look_up(call, name, at, follow);
    if (target.error == 0 && !target.link.empty())
        target.error = -EACCES;
    if (target.error != 0)
        return target;
    // A memfd has no path and belongs to the program. stdio and sockets have no path either, and cannot be changed.
    const Handle* handle = at.itself ? call.handles.find(at.handle) : nullptr;
    if (handle && handle->info.kind == HandleKind::memfd) {
        target.fd = call.handles.private_fd(at.handle); // other machines share a memfd of the image
        target.error = std::min(target.fd, 0);
        return target;
    }
    if (handle && (handle->info.kind == HandleKind::stdio || handle->info.kind == HandleKind::socket)) {
        target.error = -EPERM;
        return target;
    }
    std::string refused;
    if (const int error = call.policy.check(target.path, kChange, refused))
        target.error = refuse(call, name, target.path, error, refused);
    return target;
}

AtPath handle_itself(std::uint64_t number) {
    AtPath at;
    at.itself = true;
    at.handle = int_arg(number);
    return at;
}

// Uses the descriptor's path in /proc, because fchmod refuses O_PATH descriptors.
std::int64_t change_mode(const Target& target, std::uint64_t mode) {
    if (target.error != 0)
        return target.error;
    struct stat info {};
    if (::fstat(target.fd, &info) != 0)
        return -errno;
    if (S_ISLNK(info.st_mode))
        return -EOPNOTSUPP;
    // Set-user-ID and set-group-ID bits are never set on the host.
    return result_of(::chmod(host_path_of(target.fd).c_str(), static_cast<mode_t>(mode) & 01777));
}

// Allows only the VMM's own user and group, or no change.
std::int64_t change_owner(const Target& target, std::uint64_t uid, std::uint64_t gid) {
    if (target.error != 0)
        return target.error;
    const auto owner = static_cast<uid_t>(uid);
    const auto group = static_cast<gid_t>(gid);
    constexpr auto kKeep = static_cast<std::uint32_t>(-1);
    if ((owner != kKeep && owner != ::geteuid()) || (group != kKeep && group != ::getegid()))
        return -EPERM;
    return result_of(::fchownat(target.fd, "", owner, group, AT_EMPTY_PATH));
}

} // namespace

std::int64_t call_fchmod(CallContext& call, const CallArgs& args) {
    return change_mode(look_up_to_change(call, "chmod", handle_itself(args.arg[0]), true), args.arg[1]);
}

std::int64_t call_fchmodat(CallContext& call, const CallArgs& args) {
    const AtPath at = at_path(call, args.arg[0], args.arg[1], 0);
    return change_mode(look_up_to_change(call, "chmod", at, true), args.arg[2]);
}

std::int64_t call_fchmodat2(CallContext& call, const CallArgs& args) {
    const int flags = int_arg(args.arg[3]);
    if (flags & ~(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH))
        return -EINVAL;
    const AtPath at = at_path(call, args.arg[0], args.arg[1], flags);
    return change_mode(look_up_to_change(call, "chmod", at, !(flags & AT_SYMLINK_NOFOLLOW)), args.arg[2]);
}

std::int64_t call_fchown(CallContext& call, const CallArgs& args) {
    return change_owner(look_up_to_change(call, "chown", handle_itself(args.arg[0]), true), args.arg[1], args.arg[2]);
}

std::int64_t call_fchownat(CallContext& call, const CallArgs& args) {
    const int flags = int_arg(args.arg[4]);
    if (flags & ~(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH))
        return -EINVAL;
    const AtPath at = at_path(call, args.arg[0], args.arg[1], flags);
    return change_owner(look_up_to_change(call, "chown", at, !(flags & AT_SYMLINK_NOFOLLOW)), args.arg[2], args.arg[3]);
}

std::int64_t call_utimensat(CallContext& call, const CallArgs& args) {
    const int flags = int_arg(args.arg[3]);
    if (flags & ~(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH))
        return -EINVAL;
    std::array<timespec, 2> times{timespec{0, UTIME_NOW}, timespec{0, UTIME_NOW}};
    if (args.arg[2] != 0 && !call.memory.read(address_arg(args.arg[2]), std::as_writable_bytes(std::span(times))))
        return -EFAULT;
    // A null path means the descriptor (futimens), and then there are no flags.
    if (args.arg[1] == 0 && flags != 0)
        return -EINVAL;
    const AtPath at = args.arg[1] == 0 ? handle_itself(args.arg[0]) : at_path(call, args.arg[0], args.arg[1], flags);
    const Target target = look_up_to_change(call, "utimens", at, !(flags & AT_SYMLINK_NOFOLLOW));
    if (target.error != 0)
        return target.error;
    return result_of(::utimensat(target.fd, "", times.data(), AT_EMPTY_PATH));
}

// All xattr calls: not supported, but errors about the file itself come first.
std::int64_t call_no_xattr(CallContext& call, const CallArgs& args) {
    const auto is = [&](std::initializer_list<long> calls) {
        return std::find(calls.begin(), calls.end(), long{args.nr}) != calls.end();
    };
    const bool by_handle = is({SYS_fgetxattr, SYS_fsetxattr, SYS_flistxattr, SYS_fremovexattr});
    const bool of_link = is({SYS_lgetxattr, SYS_lsetxattr, SYS_llistxattr, SYS_lremovexattr});
    const AtPath at =
        by_handle ? handle_itself(args.arg[0]) : at_path(call, static_cast<std::uint64_t>(AT_FDCWD), args.arg[0], 0);
    const Target target = look_up(call, "xattr", at, !of_link);
    return target.error != 0 ? target.error : -EOPNOTSUPP;
}

} // namespace tinykvm
