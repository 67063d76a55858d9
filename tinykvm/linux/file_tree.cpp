#include "tinykvm/linux/file_tree.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/path_text.hpp"

namespace tinykvm {

namespace {

int open_beneath(int folder, const std::string& rest, int flags, unsigned mode) {
    open_how how{};
    how.flags = static_cast<std::uint64_t>(static_cast<unsigned>(flags | O_CLOEXEC));
    how.mode = (flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) ? mode : 0; // anything else is EINVAL
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
    while (true) {
        const long fd = ::syscall(SYS_openat2, folder, rest.c_str(), &how, sizeof how);
        if (fd >= 0)
            return static_cast<int>(fd);
        if (errno != EINTR)
            return -errno;
    }
}

bool is_procfs(int fd) {
    struct statfs info {};
    return ::fstatfs(fd, &info) == 0 && info.f_type == PROC_SUPER_MAGIC;
}

// The path that the kernel shows for a descriptor; "" if unknown.
std::string name_of(int fd) {
    std::string path(kMaxPath + 1, '\0');
    const ssize_t n = ::readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), path.data(), path.size());
    path.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return path.starts_with('/') ? path : "";
}

} // namespace

FileTree::FileTree() : root_(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)) {
    if (!root_)
        throw_errno("open /");
    const int probe = open_beneath(root_.get(), ".", O_PATH, 0);
    if (probe < 0)
        throw HostError(
            -probe,
            "openat2 / (needs Linux 5.6, and no seccomp filter against it as that of systemd's RestrictSUIDSGID=)");
    ::close(probe);
}

std::string FileTree::mount(const Volume& volume, const std::string& guest) {
    struct stat info {};
    if (::stat(volume.host.c_str(), &info) != 0)
        throw UserError(ExitCode::not_found, fmt::format("--volume={}:{}: there is no {} on the host", volume.host,
                                                         volume.guest, volume.host));
    Mount mount{volume, guest, UniqueFd(), ""};
    std::string folder = volume.host;
    if (!S_ISDIR(info.st_mode))
        std::tie(folder, mount.name) = split_last(volume.host);
    mount.folder = UniqueFd(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!mount.folder)
        throw_errno("open volume " + folder);
    std::string opened = name_of(mount.folder.get());
    if (!mount.name.empty())
        opened = join_path(opened, mount.name);
    mounts_.push_back(std::move(mount));
    std::stable_sort(mounts_.begin(), mounts_.end(),
                     [](const Mount& a, const Mount& b) { return a.guest.size() > b.guest.size(); });
    return opened;
}

void FileTree::unmount(const std::string& guest) {
    std::erase_if(mounts_, [&](const Mount& mount) { return mount.guest == guest; });
}

const FileTree::Mount* FileTree::mount_of(std::string_view path) const {
    const auto found =
        std::find_if(mounts_.begin(), mounts_.end(), [&](const Mount& mount) { return is_beneath(path, mount.guest); });
    return found == mounts_.end() ? nullptr : &*found;
}

int FileTree::open_unchecked(const std::string& path, int flags, unsigned mode) const {
    const Mount* mount = mount_of(path);
    std::string rest = path.substr(mount ? std::min(mount->guest.size(), path.size()) : 0);
    while (rest.starts_with('/'))
        rest.erase(0, 1);
    if (mount && !mount->name.empty())
        rest = rest.empty() ? mount->name : mount->name + '/' + rest;
    if (rest.empty())
        rest = ".";
    return open_beneath(mount ? mount->folder.get() : root_.get(), rest, flags, mode);
}

int FileTree::open_for_walk(const std::string& path) const { return open_unchecked(path, O_PATH | O_NOFOLLOW, 0); }

int FileTree::open(const std::string& path, int flags, unsigned mode) const {
    UniqueFd fd(open_unchecked(path, flags, mode));
    if (!fd)
        return fd.get();
    if (is_procfs(fd.get())) {
        const bool writing = !(flags & O_PATH) && (flags & O_ACCMODE) != O_RDONLY;
        if (writing || mount_of(path) || !is_beneath(path, "/proc"))
            return -EACCES;
    }
    return fd.release();
}

namespace {

bool is_same_file(int fd, int other) {
    struct stat a {
    }, b{};
    return fd >= 0 && other >= 0 && ::fstat(fd, &a) == 0 && ::fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

} // namespace

std::string FileTree::path_now(int folder, const std::string& was) const {
    std::string now = name_of(folder);
    if (const Mount* mount = mount_of(was); mount && !now.empty()) {
        const std::string base = name_of(mount->folder.get()) + (mount->name.empty() ? "" : '/' + mount->name);
        if (!base.empty() && is_beneath(now, base)) {
            now.erase(0, base == "/" ? 0 : base.size());
            now = now.empty() || now == "/" ? mount->guest : mount->guest == "/" ? now : mount->guest + now;
        } else {
            now.clear();
        }
    }
    if (now == was)
        return now;
    // The kernel's path may be that of a removed folder, or of another mount namespace. Use it only if it leads to this
    // folder.
    for (const std::string& path : {now, was})
        if (!path.empty() && is_same_file(folder, UniqueFd(open_for_walk(path)).get()))
            return path;
    return "";
}

bool FileTree::is_mount(std::string_view path) const {
    return std::any_of(mounts_.begin(), mounts_.end(), [&](const Mount& mount) { return mount.guest == path; });
}

bool FileTree::leads_to_mount(std::string_view path) const {
    return std::any_of(mounts_.begin(), mounts_.end(),
                       [&](const Mount& mount) { return mount.guest != path && is_beneath(mount.guest, path); });
}

const Volume* FileTree::volume_of(std::string_view path) const {
    const Mount* mount = mount_of(path);
    return mount ? &mount->volume : nullptr;
}

} // namespace tinykvm
