// The host side's system calls, one row each. What the guest kernel answers itself is not here.
#include <sys/syscall.h>

#include <algorithm>
#include <array>

#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/linux/handlers.hpp"

namespace tinykvm {

namespace {

constexpr std::uint32_t kFchmodat2 = 452; // newer than Debian 12's headers

constexpr CallRow kCalls[] = {
    {SYS_openat, "openat", call_openat, "O_DIRECT and O_NOATIME are ignored"},
    {SYS_memfd_create, "memfd_create", call_memfd_create, "MFD_HUGETLB"},
    {SYS_chdir, "chdir", call_chdir, ""},
    {SYS_fchdir, "fchdir", call_fchdir, ""},
    {SYS_getcwd, "getcwd", call_getcwd, ""},

    {SYS_preadv, "preadv", call_preadv, ""},
    {SYS_pwritev, "pwritev", call_pwritev, ""},
    {SYS_ftruncate, "ftruncate", call_ftruncate, ""},
    {SYS_truncate, "truncate", call_truncate, ""},
    {SYS_fallocate, "fallocate", call_fallocate, ""},
    {SYS_fsync, "fsync", call_fsync, ""},
    {SYS_fdatasync, "fdatasync", call_fdatasync, ""},
    {SYS_syncfs, "syncfs", call_syncfs, "syncs the file only"},
    {SYS_sync, "sync", call_sync, "does nothing"},
    {SYS_fadvise64, "fadvise64", call_file_hint, "does nothing"},
    {SYS_readahead, "readahead", call_file_hint, "does nothing"},
    {SYS_sync_file_range, "sync_file_range", call_file_hint, "does nothing"},
    {SYS_lseek, "lseek", call_lseek, "only SEEK_DATA and SEEK_HOLE: the guest kernel has the offset"},

    {SYS_fstat, "fstat", call_fstat, ""},
    {SYS_newfstatat, "newfstatat", call_newfstatat, ""},
    {SYS_statx, "statx", call_statx, ""},
    {SYS_statfs, "statfs", call_statfs, ""},
    {SYS_fstatfs, "fstatfs", call_fstatfs, ""},
    {SYS_faccessat, "faccessat", call_faccessat, ""},
    {SYS_faccessat2, "faccessat2", call_faccessat2, ""},
    {SYS_readlinkat, "readlinkat", call_readlinkat, ""},

    {SYS_getdents64, "getdents64", call_getdents64, ""},
    {SYS_mkdirat, "mkdirat", call_mkdirat, ""},
    {SYS_mknodat, "mknodat", call_mknodat, "devices"},
    {SYS_unlinkat, "unlinkat", call_unlinkat, ""},
    {SYS_renameat, "renameat", call_renameat, ""},
    {SYS_renameat2, "renameat2", call_renameat2, "RENAME_WHITEOUT"},
    {SYS_linkat, "linkat", call_linkat, ""},
    {SYS_symlinkat, "symlinkat", call_symlinkat, ""},

    {SYS_fchmod, "fchmod", call_fchmod, "set-user-ID and set-group-ID bits are dropped"},
    {SYS_fchmodat, "fchmodat", call_fchmodat, "set-user-ID and set-group-ID bits are dropped"},
    {kFchmodat2, "fchmodat2", call_fchmodat2, "set-user-ID and set-group-ID bits are dropped"},
    {SYS_fchown, "fchown", call_fchown, "other owners than the own: the guest kernel records them"},
    {SYS_fchownat, "fchownat", call_fchownat, "other owners than the own: the guest kernel records them"},
    {SYS_utimensat, "utimensat", call_utimensat, ""},
    {SYS_getxattr, "getxattr", call_no_xattr, "EOPNOTSUPP"},
    {SYS_lgetxattr, "lgetxattr", call_no_xattr, "EOPNOTSUPP"},
    {SYS_fgetxattr, "fgetxattr", call_no_xattr, "EOPNOTSUPP"},
    {SYS_setxattr, "setxattr", call_no_xattr, "EOPNOTSUPP"},
    {SYS_lsetxattr, "lsetxattr", call_no_xattr, "EOPNOTSUPP"},
    {SYS_fsetxattr, "fsetxattr", call_no_xattr, "EOPNOTSUPP"},
    {SYS_listxattr, "listxattr", call_no_xattr, "EOPNOTSUPP"},
    {SYS_llistxattr, "llistxattr", call_no_xattr, "EOPNOTSUPP"},
    {SYS_flistxattr, "flistxattr", call_no_xattr, "EOPNOTSUPP"},
    {SYS_removexattr, "removexattr", call_no_xattr, "EOPNOTSUPP"},
    {SYS_lremovexattr, "lremovexattr", call_no_xattr, "EOPNOTSUPP"},
    {SYS_fremovexattr, "fremovexattr", call_no_xattr, "EOPNOTSUPP"},

    {SYS_socket, "socket", call_socket,
     "families other than AF_INET, AF_INET6, AF_UNIX (AF_NETLINK is the guest kernel's); raw sockets"},
    {SYS_connect, "connect", call_connect, ""},
    {SYS_bind, "bind", call_bind, ""},
    {SYS_sendmsg, "sendmsg", call_sendmsg, "ancillary data, MSG_FASTOPEN, MSG_ZEROCOPY"},
    {SYS_recvmsg, "recvmsg", call_recvmsg, "ancillary data, MSG_ERRQUEUE; MSG_WAITALL is the guest kernel's"},
    {SYS_getsockopt, "getsockopt", call_getsockopt, "what linux/socket_options.cpp does not list"},
    {SYS_setsockopt, "setsockopt", call_setsockopt, "what linux/socket_options.cpp does not list"},
    {SYS_getsockname, "getsockname", call_getsockname, ""},
    {SYS_getpeername, "getpeername", call_getpeername, ""},
    {SYS_shutdown, "shutdown", call_shutdown, ""},

    {SYS_ioctl, "ioctl", call_ioctl, "all but FIONREAD of streams, TIOCGWINSZ, TCGETS"},
    {SYS_fcntl, "fcntl", call_fcntl, "blocking locks give EAGAIN; locks relative to SEEK_CUR"},
    {SYS_flock, "flock", call_flock, "blocking locks give EAGAIN"},
    {SYS_getrandom, "getrandom", call_getrandom, ""},

    {abi::kCloseHandle, "close_handle", call_close_handle, ""},
    {abi::kRoute, "route", call_route, "all but RTM_GETLINK and RTM_GETADDR"},
    {abi::kInterface, "interface_ioctl", call_interface_ioctl, "changes: EPERM"},
};

constexpr std::uint32_t kLinuxNumbers = 512;
static_assert(std::size(kCalls) < 255);

// Row number plus one by Linux call number; 0 is none.
constexpr std::array<std::uint8_t, kLinuxNumbers> kIndex = [] {
    std::array<std::uint8_t, kLinuxNumbers> index{};
    for (std::size_t row = 0; row < std::size(kCalls); ++row)
        if (kCalls[row].nr < kLinuxNumbers)
            index[kCalls[row].nr] = static_cast<std::uint8_t>(row + 1);
    return index;
}();

} // namespace

const CallRow* find_call(std::uint32_t nr) {
    if (nr < kLinuxNumbers)
        return kIndex[nr] != 0 ? &kCalls[kIndex[nr] - 1] : nullptr;
    const auto* row = std::find_if(std::begin(kCalls), std::end(kCalls), [&](const CallRow& r) { return r.nr == nr; });
    return row == std::end(kCalls) ? nullptr : row;
}

} // namespace tinykvm
