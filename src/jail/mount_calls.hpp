// The kernel's mount calls (fsopen(2), open_tree(2), mount_setattr(2)), which older C libraries lack. On failure all of
// them return an empty descriptor or false, with errno.
#pragma once
#include <cstdint>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::jail {

// Attributes of struct mount_attr.
inline constexpr std::uint64_t kReadOnly = 0x1, kNoSetuid = 0x2, kNoDevices = 0x4, kMapIds = 0x100000;

// A detached copy of the mount at `path`; with `all`, including the mounts beneath it. `path` must be resolved: if a
// symlink has appeared in it since, the call fails with ELOOP.
tinykvm::UniqueFd clone_tree(const char* path, bool all);
// Sets attributes of a tree and of all mounts beneath it. `user_map`: user namespace for kMapIds, or -1.
bool set_attributes(int tree, std::uint64_t attributes, int user_map = -1);
bool set_read_only(int mount); // makes a single attached mount read-only
bool set_private(int tree);    // for all of the tree: what is mounted elsewhere does not appear in it
bool attach(int tree, const char* path, int folder = -1); // `folder`: open, for a relative path; -1: the working one
// A new, detached file system. `options`: pairs of name and value, ended by nullptr.
tinykvm::UniqueFd make_file_system(const char* type, const char* const* options, std::uint64_t attributes);

bool make_private();               // no mount propagates into or out of this namespace
bool make_receiving();             // none propagates out; those of the host still appear here
bool pivot_to(const char* folder); // makes the folder /, and detaches the old root

// The same in two steps. pivot_root(2) looks at every task of the host, which takes milliseconds where thousands of
// functions run: here it does so before anybody waits for this process.
//
// Makes a small file system the root of this mount namespace, which must receive only. The old root lies on top of it,
// and stays this process's root. Returns the new one, which has an empty folder kStand for a root to be mounted on.
// Empty if that is not possible: then nothing has changed. Throws HostError if it can neither go on nor back.
tinykvm::UniqueFd pivot_beneath();
inline constexpr const char* kStand = "root";
// Makes what is mounted on kStand /, and detaches the old root. Nothing else is left but the empty file system, which
// no process reaches that cannot leave its root.
bool enter_beneath(int beneath);

} // namespace kvmserver::jail
