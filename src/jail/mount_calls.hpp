// The kernel's calls for mounts (fsopen(2), open_tree(2), mount_setattr(2)), which the C libraries of older systems
// have not. All are -1 with errno when they fail.
#pragma once
#include <cstdint>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::jail {

// Of struct mount_attr.
inline constexpr std::uint64_t kReadOnly = 0x1, kNoSetuid = 0x2, kNoDevices = 0x4, kMapIds = 0x100000;

// A copy of what is mounted at a path, with what is mounted beneath it if `all`, not attached anywhere yet.
// The path is a real one: a symlink that has come into it since it was looked at is ELOOP.
tinykvm::UniqueFd clone_tree(const char* path, bool all);
// `user_map`: a user namespace whose ids files get (kMapIds), else -1. Of all that is mounted beneath it too.
bool set_attributes(int tree, std::uint64_t attributes, int user_map = -1);
bool set_read_only(int mount); // that one alone, which is attached
bool attach(int tree, const char* path);
// A new file system that is not attached yet; `options`: pairs of name and value, ended by nullptr.
tinykvm::UniqueFd make_file_system(const char* type, const char* const* options, std::uint64_t attributes);

bool make_private();               // what is mounted here is seen nowhere else, and the other way round
bool pivot_to(const char* folder); // it is / afterwards, and nothing of the old one remains

} // namespace kvmserver::jail
