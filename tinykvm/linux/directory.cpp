// Listing folders; creating, removing and renaming their entries.
//
// Changes work on a name in a folder that Policy::place opened, so that the host follows no symlink on the way.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "tinykvm/base/path_text.hpp"
#include "tinykvm/linux/arguments.hpp"
#include "tinykvm/linux/creation_mask.hpp"
#include "tinykvm/linux/handlers.hpp"

namespace tinykvm {

namespace {

constexpr std::uint64_t kListBytes = 64 << 10;

struct PathTarget {
    OpenedPlace found;
    std::string asked;
    std::int64_t error = 0; // of reading the argument, or -kOwnPath; see also found.error
};

PathTarget place_of(CallContext& call, std::uint64_t folder, std::uint64_t path, bool follow = false) {
    PathTarget place;
    const AtPath at = at_path(call, folder, path, 0);
    place.error = at.error;
    place.asked = at.path;
    if (place.error == 0)
        place.found = call.policy.place(at.path, follow, call.self);
    if (place.found.error == kOwnPath) {
        place.error = -kOwnPath;
        call.own_path = place.found.path;
    }
    return place;
}

// Checks a place for a new entry. EEXIST comes before a missing permission, which mkdir -p relies on.
std::int64_t check_new(CallContext& call, const char* name, const PathTarget& place) {
    if (place.error != 0)
        return place.error;
    if (place.found.exists || place.found.ends_in_dot || place.found.ends_in_dotdot)
        return -EEXIST;
    return refuse(call, name, place.asked, place.found.error, place.found.refused);
}

// Checks a place whose entry must exist. `dot` is the errno for a path that ends in "." or "..".
std::int64_t check_old(CallContext& call, const char* name, const PathTarget& place, int dot) {
    if (place.error != 0)
        return place.error;
    if (place.found.ends_in_dot || place.found.ends_in_dotdot)
        return -dot;
    if (place.found.visible && !place.found.exists)
        return -(place.found.error == ENOTDIR || place.found.error == ELOOP ? place.found.error : ENOENT);
    return refuse(call, name, place.asked, place.found.error, place.found.refused);
}

std::int64_t rename_places(CallContext& call, const CallArgs& args, unsigned flags) {
    if (flags & ~static_cast<unsigned>(RENAME_NOREPLACE | RENAME_EXCHANGE))
        return -EINVAL;
    const PathTarget from = place_of(call, args.arg[0], args.arg[1]);
    if (const std::int64_t error = check_old(call, "rename", from, EBUSY))
        return error;
    const PathTarget to = place_of(call, args.arg[2], args.arg[3]);
    if (to.error != 0)
        return to.error;
    if (to.found.ends_in_dot || to.found.ends_in_dotdot)
        return -EBUSY;
    if (to.found.error != 0)
        return refuse(call, "rename", to.asked, to.found.error, to.found.refused);
    if (to.found.must_be_directory && !from.found.is_directory)
        return -ENOTDIR;
    return result_of(::syscall(SYS_renameat2, from.found.folder.get(), from.found.name.c_str(), to.found.folder.get(),
                               to.found.name.c_str(), flags));
}

} // namespace

std::int64_t call_getdents64(CallContext& call, const CallArgs& args) {
    std::int64_t error = 0;
    const Handle* handle = use_handle(call, args.arg[0], error);
    if (!handle)
        return error;
    if (handle->info.kind != HandleKind::directory)
        return -ENOTDIR;
    // The position is kept in the open file description, which must not be shared with other machines.
    const int fd = call.handles.private_fd(int_arg(args.arg[0]));
    if (fd < 0)
        return fd;
    if (::lseek(fd, static_cast<off_t>(args.arg[3]), SEEK_SET) < 0)
        return -errno;
    std::vector<std::byte> entries(std::min<std::uint64_t>(static_cast<std::uint32_t>(args.arg[2]), kListBytes));
    const long n = ::syscall(SYS_getdents64, fd, entries.data(), entries.size());
    if (n < 0)
        return -errno;
    const auto after = static_cast<std::int64_t>(::lseek(fd, 0, SEEK_CUR));
    if (!call.memory.write(address_arg(args.arg[1]), std::span(entries).first(static_cast<std::size_t>(n))) ||
        !call.memory.store(address_arg(args.arg[4]), after))
        return -EFAULT;
    return n;
}

std::int64_t call_mkdirat(CallContext& call, const CallArgs& args) {
    const PathTarget place = place_of(call, args.arg[0], args.arg[1]);
    if (const std::int64_t error = check_new(call, "mkdir", place))
        return error;
    const auto mode = static_cast<mode_t>(args.arg[2]) & 01777;
    const UnmaskedMode unmasked(mode);
    return result_of(::mkdirat(place.found.folder.get(), place.found.name.c_str(), mode));
}

// Makes regular files, FIFOs and socket names. Devices are refused.
std::int64_t call_mknodat(CallContext& call, const CallArgs& args) {
    const auto mode = static_cast<mode_t>(args.arg[2]);
    const mode_t format = mode & S_IFMT;
    if (format != 0 && format != S_IFREG && format != S_IFIFO && format != S_IFSOCK)
        return format == S_IFCHR || format == S_IFBLK || format == S_IFDIR ? -EPERM : -EINVAL;
    const PathTarget place = place_of(call, args.arg[0], args.arg[1]);
    if (const std::int64_t error = check_new(call, "mknod", place))
        return error;
    if (place.found.must_be_directory)
        return -ENOENT;
    const UnmaskedMode unmasked(mode & 0777);
    return result_of(::mknodat(place.found.folder.get(), place.found.name.c_str(), format | (mode & 0777), 0));
}

std::int64_t call_unlinkat(CallContext& call, const CallArgs& args) {
    const int flags = int_arg(args.arg[2]);
    if (flags & ~AT_REMOVEDIR)
        return -EINVAL;
    const PathTarget place = place_of(call, args.arg[0], args.arg[1]);
    const int dot = !(flags & AT_REMOVEDIR) ? EISDIR : place.found.ends_in_dotdot ? ENOTEMPTY : EINVAL;
    if (const std::int64_t error = check_old(call, "unlink", place, dot))
        return error;
    if (place.found.must_be_directory && !place.found.is_directory)
        return -ENOTDIR;
    return result_of(::unlinkat(place.found.folder.get(), place.found.name.c_str(), flags));
}

std::int64_t call_renameat(CallContext& call, const CallArgs& args) { return rename_places(call, args, 0); }

std::int64_t call_renameat2(CallContext& call, const CallArgs& args) {
    return rename_places(call, args, static_cast<unsigned>(args.arg[4]));
}

namespace {

// linkat with AT_EMPTY_PATH: gives an open file a name, such as a first one after O_TMPFILE.
std::int64_t link_handle(CallContext& call, const CallArgs& args) {
    std::int64_t error = 0;
    const Handle* handle = use_handle(call, args.arg[0], error);
    if (!handle)
        return error;
    const Rights need = kWrite | kChange;
    if (handle->info.kind != HandleKind::file || handle->info.synthetic)
        return handle->info.kind == HandleKind::directory ? -EPERM : -EXDEV;
    if ((handle->info.rights & need) != need)
        return -EACCES;
    const PathTarget to = place_of(call, args.arg[2], args.arg[3]);
    if ((error = check_new(call, "link", to)) != 0)
        return error;
    if (to.found.must_be_directory)
        return -ENOENT;
    return result_of(::linkat(AT_FDCWD, host_path_of(handle->file->fd()).c_str(), to.found.folder.get(),
                              to.found.name.c_str(), AT_SYMLINK_FOLLOW));
}

} // namespace

// Both paths need kChange: otherwise a link in a writable folder would make a read-only file writable.
std::int64_t call_linkat(CallContext& call, const CallArgs& args) {
    const int flags = int_arg(args.arg[4]);
    if (flags & ~(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH))
        return -EINVAL;
    if (flags & AT_EMPTY_PATH)
        if (const AtPath at = at_path(call, args.arg[0], args.arg[1], AT_EMPTY_PATH); at.error != 0 || at.itself)
            return at.error != 0 ? at.error : link_handle(call, args);
    const PathTarget from = place_of(call, args.arg[0], args.arg[1], (flags & AT_SYMLINK_FOLLOW) != 0);
    if (const std::int64_t error = check_old(call, "link", from, EPERM))
        return error;
    const PathTarget to = place_of(call, args.arg[2], args.arg[3]);
    if (const std::int64_t error = check_new(call, "link", to))
        return error;
    if (to.found.must_be_directory)
        return -ENOENT;
    return result_of(
        ::linkat(from.found.folder.get(), from.found.name.c_str(), to.found.folder.get(), to.found.name.c_str(), 0));
}

// The target may be any text: it is checked when the link is followed.
std::int64_t call_symlinkat(CallContext& call, const CallArgs& args) {
    const auto target = call.memory.load_string(address_arg(args.arg[0]), kMaxPath);
    if (target.error != 0)
        return -target.error;
    if (target.value.empty())
        return -ENOENT;
    const PathTarget place = place_of(call, args.arg[1], args.arg[2]);
    if (const std::int64_t error = check_new(call, "symlink", place))
        return error;
    if (place.found.must_be_directory)
        return -ENOENT;
    return result_of(::symlinkat(target.value.c_str(), place.found.folder.get(), place.found.name.c_str()));
}

} // namespace tinykvm
