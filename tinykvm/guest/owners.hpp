// Owners that the program gave files: kept in here, shown by stat. On the host a file stays whose it is.
#pragma once
#include "tinykvm/guest/kernel.hpp"

namespace gk {

// A file as a system call names it: a folder's descriptor and a path of the program's, or a handle of the host.
struct NamedFile {
    u64 dir;
    u64 path = 0;
    u64 flags = 0; // AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH
    i32 handle = -1;
};
inline NamedFile file_of_handle(i32 handle) { return {0, 0, 0, handle}; }

// To be called with the result of a stat whose struct went to `at`: puts the recorded owner there.
i64 show_owner(i64 result, u64 at, const NamedFile&);
i64 show_owner_in_statx(i64 result, u64 at, const NamedFile&);

// chown of one of the machine's own files (paths.cpp): false when the path leads to none.
bool change_own_owner(u64 dir, u64 path, u64 flags, u32 uid, u32 gid, i64& result);

// Whether what the program creates is to be recorded: it has become someone else than who runs the machine.
bool creates_as_other();
// Records who made it: no effect when nothing is to be recorded or `result` is an error. Passes the result on.
i64 note_created(i64 result, const NamedFile&);

} // namespace gk
