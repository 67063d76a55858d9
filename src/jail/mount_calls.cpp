#include "src/jail/mount_calls.hpp"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "tinykvm/base/error.hpp"

namespace kvmserver::jail {

using tinykvm::UniqueFd;

namespace {

// asm-generic/unistd.h and linux/mount.h of Linux 5.12.
constexpr long kOpenat2 = 437;
constexpr long kOpenTree = 428, kMoveMount = 429, kFsopen = 430, kFsconfig = 431, kFsmount = 432, kMountSetattr = 442;
constexpr unsigned kCloneTree = 1, kRecursive = 0x8000, kFromEmptyPath = 0x4, kCloseOnExec = 1;
constexpr unsigned kSetString = 1, kCreate = 6;

struct OpenHow { // linux/openat2.h
    std::uint64_t flags, mode, resolve;
};
constexpr std::uint64_t kNoSymlinks = 0x4;

struct MountAttributes {
    std::uint64_t set, clear, propagation, user_namespace;
};

} // namespace

UniqueFd clone_tree(const char* path, bool all) {
    const OpenHow how{O_PATH | O_CLOEXEC, 0, kNoSymlinks};
    const UniqueFd place(static_cast<int>(::syscall(kOpenat2, AT_FDCWD, path, &how, sizeof(how))));
    if (!place)
        return {};
    const unsigned flags = AT_EMPTY_PATH | kCloneTree | O_CLOEXEC | (all ? kRecursive : 0u);
    return UniqueFd(static_cast<int>(::syscall(kOpenTree, place.get(), "", flags)));
}

bool set_attributes(int tree, std::uint64_t attributes, int user_map) {
    MountAttributes wanted{attributes, 0, 0, 0};
    if (user_map >= 0) {
        wanted.set |= kMapIds;
        wanted.user_namespace = static_cast<std::uint64_t>(user_map);
    }
    return ::syscall(kMountSetattr, tree, "", AT_EMPTY_PATH | kRecursive, &wanted, sizeof(wanted)) == 0;
}

bool set_read_only(int mount) {
    MountAttributes wanted{kReadOnly, 0, 0, 0};
    return ::syscall(kMountSetattr, mount, "", AT_EMPTY_PATH, &wanted, sizeof(wanted)) == 0;
}

bool set_private(int tree) {
    MountAttributes wanted{0, 0, MS_PRIVATE, 0};
    return ::syscall(kMountSetattr, tree, "", AT_EMPTY_PATH | kRecursive, &wanted, sizeof(wanted)) == 0;
}

bool attach(int tree, const char* path, int folder) {
    return ::syscall(kMoveMount, tree, "", folder < 0 ? AT_FDCWD : folder, path, kFromEmptyPath) == 0;
}

UniqueFd make_file_system(const char* type, const char* const* options, std::uint64_t attributes) {
    const UniqueFd context(static_cast<int>(::syscall(kFsopen, type, kCloseOnExec)));
    if (!context)
        return {};
    for (; *options; options += 2)
        if (::syscall(kFsconfig, context.get(), kSetString, options[0], options[1], 0) != 0)
            return {};
    if (::syscall(kFsconfig, context.get(), kCreate, nullptr, nullptr, 0) != 0)
        return {};
    return UniqueFd(static_cast<int>(::syscall(kFsmount, context.get(), kCloseOnExec, attributes)));
}

bool make_private() { return ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0; }

bool make_receiving() { return ::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) == 0; }

bool pivot_to(const char* folder) {
    if (::chdir(folder) < 0)
        return false;
    // pivot_root(2), "pivot_root(".", ".")": the old root is then stacked on top of the new one.
    if (::syscall(SYS_pivot_root, ".", ".") == 0)
        return ::umount2(".", MNT_DETACH) == 0 && ::chdir("/") == 0;
    // An initramfs cannot be pivoted away. It stays beneath the new root, where no process without rights reaches it.
    return errno == EINVAL && ::mount(".", "/", nullptr, MS_MOVE, nullptr) == 0 && ::chroot(".") == 0 &&
           ::chdir("/") == 0;
}

UniqueFd pivot_beneath() {
    static const char* const kOptions[] = {"size", "4k", "nr_inodes", "3", "mode", "0755", nullptr};
    const UniqueFd host(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    UniqueFd made = make_file_system("tmpfs", kOptions, kNoSetuid | kNoDevices);
    if (!host || !made || ::mkdirat(made.get(), kStand, 0755) < 0 || !set_attributes(made.get(), kReadOnly) ||
        ::chroot("/") < 0 /* whether it may */ || !attach(made.get(), "/proc")) // any folder will do
        return {};
    if (::fchdir(made.get()) == 0 && ::syscall(SYS_pivot_root, ".", ".") == 0) {
        if (::fchdir(host.get()) < 0 || ::chroot(".") < 0 || ::chdir("/") < 0)
            tinykvm::throw_errno("return to the host's root");
        return made;
    }
    if (::chdir("/") < 0 || ::umount2("/proc", MNT_DETACH) < 0)
        tinykvm::throw_errno("undo the mount at /proc");
    return {};
}

bool enter_beneath(int beneath) {
    return ::fchdir(beneath) == 0 && ::umount2(".", MNT_DETACH) == 0 && ::chdir(kStand) == 0 && ::chroot(".") == 0 &&
           ::chdir("/") == 0;
}

} // namespace kvmserver::jail
