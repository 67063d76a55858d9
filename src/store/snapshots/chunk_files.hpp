// Where chunks lie.
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
// The digest that the file of that name in chunks/`folder` must have; nothing when that is no place of a
// chunk.
std::optional<Digest> chunk_named(std::string_view folder, std::string_view name);

// Whether a file of the chunk's size is there. (Its bytes are verify's matter.)
bool has_chunk(const Folder& folder, const Digest& digest, std::uint64_t length);
// Reads a chunk and checks it. Throws UserError (bad_snapshot).
std::vector<std::byte> read_chunk(const Folder& folder, const Digest& digest, std::uint64_t length);
// The same in parts, of which all but the digest has been checked when they are given.
void read_chunk(const Folder& folder, const Digest& digest, std::uint64_t length,
                const std::function<void(std::span<const std::byte>)>& take);
// Opens it; its size is checked, its bytes are not. Throws UserError (bad_snapshot).
tinykvm::UniqueFd open_chunk(const Folder& folder, const Digest& digest, std::uint64_t length);

} // namespace kvmserver::store
