// Opening and closing handles, and the current folder.
//
// The current folder is handle kHandleCwd. chdir puts another folder under that number, so reset restores the old one,
// and AT_FDCWD always means the same handle.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/linux/arguments.hpp"
#include "tinykvm/linux/creation_mask.hpp"
#include "tinykvm/linux/handlers.hpp"

namespace tinykvm {

namespace {

// Copies the whole content of a small file to guest memory. Returns its size, or 0 if the file is not small.
std::uint32_t put_content(CallContext& call, int fd, const struct stat& status, std::uint64_t content_at) {
    std::array<std::byte, abi::kContentBytes> content;
    if (!S_ISREG(status.st_mode) || status.st_size <= 0 || status.st_size > static_cast<off_t>(content.size()))
        return 0;
    const auto bytes = static_cast<std::size_t>(status.st_size);
    if (::pread(fd, content.data(), bytes, 0) != status.st_size ||
        !call.memory.write(address_arg(content_at), std::span(content).first(bytes)))
        return 0;
    return static_cast<std::uint32_t>(bytes);
}

// Adds a handle and writes the OpenReply. If that cannot be written, the handle is closed again. The content of a small
// file opened for reading only is copied to `content_at`, unless that is 0.
std::int64_t add_with_reply(CallContext& call, UniqueFd fd, HandleInfo info, std::uint64_t reply_at,
                            std::uint64_t content_at = 0) {
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0)
        return -errno;
    const bool offset = S_ISREG(status.st_mode) || S_ISDIR(status.st_mode) || S_ISBLK(status.st_mode);
    const bool keeps_offset = offset && info.kind != HandleKind::stdio;
    abi::OpenReply reply{status.st_mode, keeps_offset ? 1u : 0u, {}, 0, 0};
    static_assert(sizeof(reply.stat) == sizeof(status));
    std::memcpy(reply.stat, &status, sizeof(status));
    if (keeps_offset && content_at != 0)
        reply.content_bytes = put_content(call, fd.get(), status, content_at);
    const std::int32_t handle = call.handles.add(std::move(fd), std::move(info));
    if (handle >= 0 && !call.memory.store(address_arg(reply_at), reply)) {
        call.handles.close(handle);
        return -EFAULT;
    }
    return handle;
}

std::int64_t set_cwd(CallContext& call, UniqueFd fd, HandleInfo info) {
    if (!fd)
        return -errno;
    if (!call.handles.find(abi::kHandleCwd))
        return -EBADF;
    call.handles.replace(abi::kHandleCwd, std::move(fd), std::move(info));
    return 0;
}

} // namespace

std::int64_t call_openat(CallContext& call, const CallArgs& args) {
    const AtPath at = at_path(call, args.arg[0], args.arg[1], 0);
    if (at.error != 0)
        return at.error;
    const int flags = int_arg(args.arg[2]);
    const auto mode = static_cast<unsigned>(args.arg[3]);
    const UnmaskedMode unmasked((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? mode : 0);
    OpenedPath opened = call.policy.open(at.path, flags, mode, call.self);
    if (opened.error != 0)
        return refuse(call, "open", at.path, opened);
    if (!opened.link.empty())
        return -ELOOP; // a synthetic symlink has no descriptor
    HandleInfo info;
    if (const int error = describe(opened, static_cast<std::uint32_t>(flags), info))
        return -error;
    if (info.kind == HandleKind::directory && (flags & O_DIRECT) && !(flags & O_PATH))
        return -EINVAL;
    const bool reads = (flags & (O_ACCMODE | O_PATH | O_TRUNC | O_CREAT)) == O_RDONLY;
    return add_with_reply(call, std::move(opened.fd), std::move(info), args.arg[4], reads ? args.arg[5] : 0);
}

std::int64_t call_memfd_create(CallContext& call, const CallArgs& args) {
    constexpr std::uint32_t kNoExecSeal = 8, kExec = 16; // MFD_NOEXEC_SEAL, MFD_EXEC: no effect, there is no execve
    constexpr std::size_t kMaxName = 249;
    const auto name = call.memory.load_string(address_arg(args.arg[0]), kMaxName);
    const auto flags = static_cast<std::uint32_t>(args.arg[1]);
    if (name.error != 0)
        return name.error == ENAMETOOLONG ? -EINVAL : -name.error;
    if (flags & ~(MFD_CLOEXEC | MFD_ALLOW_SEALING | kNoExecSeal | kExec))
        return -EINVAL;
    UniqueFd fd(::memfd_create(name.value.c_str(), MFD_CLOEXEC | (flags & MFD_ALLOW_SEALING)));
    if (!fd)
        return -errno;
    HandleInfo info;
    info.kind = HandleKind::memfd;
    info.path = name.value;
    info.flags = O_RDWR;
    info.rights = kLookup | kRead | kWrite | kExecute;
    return add_with_reply(call, std::move(fd), std::move(info), args.arg[2]);
}

std::int64_t call_close_handle(CallContext& call, const CallArgs& args) {
    return call.handles.close(int_arg(args.arg[0]));
}

std::int64_t call_chdir(CallContext& call, const CallArgs& args) {
    const AtPath at = at_path(call, static_cast<std::uint64_t>(AT_FDCWD), args.arg[0], 0);
    if (at.error != 0)
        return at.error;
    OpenedPath opened = call.policy.open(at.path, O_PATH | O_DIRECTORY, 0, call.self);
    if (opened.error != 0)
        return refuse(call, "chdir", at.path, opened);
    HandleInfo info;
    if (const int error = describe(opened, O_PATH | O_DIRECTORY, info))
        return -error;
    return set_cwd(call, std::move(opened.fd), std::move(info));
}

std::int64_t call_fchdir(CallContext& call, const CallArgs& args) {
    std::int64_t error = 0;
    const Handle* handle = use_handle(call, args.arg[0], error);
    if (!handle)
        return error;
    if (handle->info.kind != HandleKind::directory)
        return -ENOTDIR;
    HandleInfo info = handle->info;
    if (std::string now = call.policy.folder_path(*handle); !now.empty())
        info.path = std::move(now);
    return set_cwd(call, UniqueFd(::fcntl(handle->file->fd(), F_DUPFD_CLOEXEC, 3)), std::move(info));
}

std::int64_t call_getcwd(CallContext& call, const CallArgs& args) {
    std::int64_t error = 0;
    const Handle* handle = use_handle(call, abi::kHandleCwd, error);
    if (!handle)
        return error;
    const std::string path = call.policy.folder_path(*handle);
    if (path.empty())
        return -ENOENT;
    if (args.arg[1] <= path.size())
        return -ERANGE;
    if (!call.memory.write(address_arg(args.arg[0]), std::as_bytes(std::span(path.c_str(), path.size() + 1))))
        return -EFAULT;
    return static_cast<std::int64_t>(path.size() + 1);
}

} // namespace tinykvm
