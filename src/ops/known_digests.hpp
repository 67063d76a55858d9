// Digests of snapshot files, kept in the user's cache folder: a deploy of a file that was digested before does not read
// it again.
#pragma once
#include <optional>

#include "src/common/digest.hpp"
#include "src/common/file_stamp.hpp"
#include "src/snapshot/folder_cache.hpp"

namespace kvmserver::ops {

std::optional<Digest> known_digest(const FolderCache& cache, const FileStamp& file);
// `file` as it was before it was read. Ignored while it is not settled.
void note_digest(const FolderCache& cache, const FileStamp& file, const Digest& digest);

} // namespace kvmserver::ops
