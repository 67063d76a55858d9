// Where the bytes of a snapshot come from: one file, or the pieces of one that lie in files of their own.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver {

// Immutable, to be used by any number of threads.
class ByteSource {
public:
    virtual ~ByteSource() = default;
    virtual std::uint64_t size() const = 0; // bytes
    // Fills `bytes`, which lie within size(). Throws FormatError when they are not there any more, HostError.
    virtual void read_at(std::uint64_t offset, std::span<std::byte> bytes) const = 0;
};

// Throws UserError (not_found, not_permitted, bad_snapshot: no regular file), HostError.
std::unique_ptr<ByteSource> open_file_source(const std::filesystem::path& path);
// The same of one that is open; `name` is for messages.
std::unique_ptr<ByteSource> open_file_source(tinykvm::UniqueFd fd, const std::string& name);

// `list` is a file of lines "LENGTH NAME", one a piece, in order. `files` has an open file for each, which
// holds that piece and nothing else, for ever; the names are for messages. Throws UserError (bad_snapshot)
// for another text, or another number of files.
std::unique_ptr<ByteSource> open_pieces_source(int list, std::vector<tinykvm::UniqueFd> files);

} // namespace kvmserver
