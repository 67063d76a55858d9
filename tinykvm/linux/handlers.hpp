// The handlers of linux/table.cpp, one file per family of calls.
#pragma once
#include "tinykvm/linux/call.hpp"

namespace tinykvm {

// open.cpp
std::int64_t call_openat(CallContext&, const CallArgs&);
std::int64_t call_memfd_create(CallContext&, const CallArgs&);
std::int64_t call_close_handle(CallContext&, const CallArgs&);
std::int64_t call_chdir(CallContext&, const CallArgs&);
std::int64_t call_fchdir(CallContext&, const CallArgs&);
std::int64_t call_getcwd(CallContext&, const CallArgs&);

// read_write.cpp
std::int64_t call_preadv(CallContext&, const CallArgs&);
std::int64_t call_pwritev(CallContext&, const CallArgs&);
std::int64_t call_ftruncate(CallContext&, const CallArgs&);
std::int64_t call_truncate(CallContext&, const CallArgs&);
std::int64_t call_fallocate(CallContext&, const CallArgs&);
std::int64_t call_fsync(CallContext&, const CallArgs&);
std::int64_t call_fdatasync(CallContext&, const CallArgs&);
std::int64_t call_syncfs(CallContext&, const CallArgs&);
std::int64_t call_sync(CallContext&, const CallArgs&);
std::int64_t call_file_hint(CallContext&, const CallArgs&);
std::int64_t call_lseek(CallContext&, const CallArgs&);

// stat.cpp
std::int64_t call_fstat(CallContext&, const CallArgs&);
std::int64_t call_newfstatat(CallContext&, const CallArgs&);
std::int64_t call_statx(CallContext&, const CallArgs&);
std::int64_t call_statfs(CallContext&, const CallArgs&);
std::int64_t call_fstatfs(CallContext&, const CallArgs&);
std::int64_t call_faccessat(CallContext&, const CallArgs&);
std::int64_t call_faccessat2(CallContext&, const CallArgs&);
std::int64_t call_readlinkat(CallContext&, const CallArgs&);

// directory.cpp
std::int64_t call_getdents64(CallContext&, const CallArgs&);
std::int64_t call_mkdirat(CallContext&, const CallArgs&);
std::int64_t call_mknodat(CallContext&, const CallArgs&);
std::int64_t call_unlinkat(CallContext&, const CallArgs&);
std::int64_t call_renameat(CallContext&, const CallArgs&);
std::int64_t call_renameat2(CallContext&, const CallArgs&);
std::int64_t call_linkat(CallContext&, const CallArgs&);
std::int64_t call_symlinkat(CallContext&, const CallArgs&);

// attributes.cpp
std::int64_t call_fchmod(CallContext&, const CallArgs&);
std::int64_t call_fchmodat(CallContext&, const CallArgs&);
std::int64_t call_fchmodat2(CallContext&, const CallArgs&);
std::int64_t call_fchown(CallContext&, const CallArgs&);
std::int64_t call_fchownat(CallContext&, const CallArgs&);
std::int64_t call_utimensat(CallContext&, const CallArgs&);
std::int64_t call_no_xattr(CallContext&, const CallArgs&);

// socket.cpp
std::int64_t call_socket(CallContext&, const CallArgs&);
std::int64_t call_connect(CallContext&, const CallArgs&);
std::int64_t call_bind(CallContext&, const CallArgs&);
std::int64_t call_getsockname(CallContext&, const CallArgs&);
std::int64_t call_getpeername(CallContext&, const CallArgs&);
std::int64_t call_shutdown(CallContext&, const CallArgs&);

// socket_message.cpp
std::int64_t call_sendmsg(CallContext&, const CallArgs&);
std::int64_t call_recvmsg(CallContext&, const CallArgs&);

// socket_options.cpp
std::int64_t call_getsockopt(CallContext&, const CallArgs&);
std::int64_t call_setsockopt(CallContext&, const CallArgs&);

// route.cpp, interface_ioctl.cpp
std::int64_t call_route(CallContext&, const CallArgs&);
std::int64_t call_interface_ioctl(CallContext&, const CallArgs&);

// control.cpp
std::int64_t call_ioctl(CallContext&, const CallArgs&);
std::int64_t call_fcntl(CallContext&, const CallArgs&);
std::int64_t call_flock(CallContext&, const CallArgs&);
std::int64_t call_getrandom(CallContext&, const CallArgs&);

} // namespace tinykvm
