// The files of chunks.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "src/common/digest.hpp"
#include "src/store/files/folder.hpp"

namespace kvmserver::store {

std::string chunk_folder(const Digest& digest); // chunks/ab
std::string chunk_path(const Digest& digest);   // chunks/ab/abcdef...
// The digest that the file `name` in chunks/`folder` must have; nullopt if chunks are never stored there.
std::optional<Digest> chunk_named(std::string_view folder, std::string_view name);

// Whether a file of the chunk's size exists. (verify checks its bytes.)
bool has_chunk(const Folder& folder, const Digest& digest, std::uint64_t length);
// Reads a chunk and checks its digest. Throws UserError (bad_snapshot).
std::vector<std::byte> read_chunk(const Folder& folder, const Digest& digest, std::uint64_t length);
// The same in parts. `take` gets them before the digest has been checked.
void read_chunk(const Folder& folder, const Digest& digest, std::uint64_t length,
                const std::function<void(std::span<const std::byte>)>& take);
// Opens a chunk and checks its size, but not its bytes. Throws UserError (bad_snapshot).
tinykvm::UniqueFd open_chunk(const Folder& folder, const Digest& digest, std::uint64_t length);

} // namespace kvmserver::store
