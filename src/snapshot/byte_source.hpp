// The bytes of a snapshot: one file, or pieces that are files of their own.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver {

// Immutable; any number of threads may use it.
class ByteSource {
public:
    virtual ~ByteSource() = default;
    virtual std::uint64_t size() const = 0; // bytes
    // Fills `bytes`; the range must lie within size(). Throws FormatError when the file has become shorter, HostError
    // otherwise.
    virtual void read_at(std::uint64_t offset, std::span<std::byte> bytes) const = 0;
};

// Opens a regular file. Throws UserError (not_found, not_permitted, bad_snapshot: not a regular file), HostError.
std::unique_ptr<ByteSource> open_file_source(const std::filesystem::path& path);
// The same for an open file; `name` is for messages.
std::unique_ptr<ByteSource> open_file_source(tinykvm::UniqueFd fd, const std::string& name);

// Pieces that are still on their way. Any number of threads may use it.
class ArrivingPieces {
public:
    virtual ~ArrivingPieces() = default;
    // Waits for the piece, and returns its file, which belongs to this object. Throws UserError when it does not come.
    virtual int wait_for(std::size_t piece) = 0;
};

// After the name of a piece in a list: its file comes later.
inline constexpr std::string_view kComesLater = " later";

// `list` is a file with one line "LENGTH NAME" for each piece, in order; names are for messages. `files` has an open
// file for each piece but those that come later. It holds exactly that piece and never changes. `arriving` may be null:
// then reading what comes later is a FormatError. Throws UserError (bad_snapshot) when the list is malformed or the
// number of files differs.
std::unique_ptr<ByteSource> open_pieces_source(int list, std::vector<tinykvm::UniqueFd> files,
                                               std::shared_ptr<ArrivingPieces> arriving = nullptr);

} // namespace kvmserver
