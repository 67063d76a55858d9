// Owners of host files as the program sees them. chown only records the new owner in the guest kernel, and stat shows
// it. The owner on the host never changes.
#pragma once
#include "tinykvm/guest/kernel.hpp"

namespace gk {

// A file as a system call names it: folder descriptor and path as the program passed them, or a host handle.
struct NamedFile {
    u64 dir;
    u64 path = 0;
    u64 flags = 0; // AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH
    i32 handle = -1;
};
inline NamedFile file_of_handle(i32 handle) { return {0, 0, 0, handle}; }

// Called with the result of a stat that was stored at `at`: replaces the owner there by the recorded one.
i64 show_owner(i64 result, u64 at, const NamedFile&);
i64 show_owner_in_statx(i64 result, u64 at, const NamedFile&);

// Whether chown may change this owner and group to the new ones (~0: keep). As in fs/attr.c: a file's owner may change
// its group to one of the owner's groups. Any other change needs CAP_CHOWN.
bool may_change_owner(u32 uid, u32 gid, u32 new_uid, u32 new_gid);

// chown of one of the machine's own files (paths.cpp). False if the path does not lead to one.
bool change_own_owner(u64 dir, u64 path, u64 flags, u32 uid, u32 gid, i64& result);

// Whether files the program creates need a record: its ids are no longer those of whoever runs the machine.
bool creates_as_other();
// Records the program as owner of a new file, if needed. Takes and returns the call's result.
i64 note_created(i64 result, const NamedFile&);

} // namespace gk
