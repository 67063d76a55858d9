// Reads snapshot files, which may come from anybody.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/snapshot/byte_source.hpp"
#include "src/snapshot/index.hpp"
#include "src/snapshot/metadata.hpp"
#include "src/snapshot/page_cache.hpp"

namespace kvmserver {

// An opened snapshot: immutable, to be used by any number of threads. HostError when the host cannot read the
// file; all other failures are UserErrors of one line that begins with the file's name: not_found,
// not_permitted, or bad_snapshot for what is wrong with its bytes.
class SnapshotReader {
public:
    // Checks all but the content of the chunks.
    static SnapshotReader open(const std::filesystem::path& path);
    // The same of other bytes; `name` is for messages.
    static SnapshotReader open(std::unique_ptr<ByteSource> source, const std::filesystem::path& name);

    const std::filesystem::path& path() const { return path_; }
    // Of a copy of the chunk's pages; nothing in a snapshot of an earlier kvmserver, which says no SHA-256.
    // What it says may be wrong: verify() looks.
    std::optional<CopyName> copy_name(std::size_t chunk) const;
    std::uint64_t file_bytes() const { return header_.prefix.file_bytes; }
    std::uint32_t format_version() const { return header_.prefix.version; }
    const MadeWith& made_with() const { return metadata_.made_with; }
    const tinykvm::MachineState& state() const { return metadata_.machine; }

    // Hot chunks first.
    std::span<const ChunkInfo> chunks() const { return chunks_; }
    // Which chunk fills the frame; nothing when its page is zero.
    std::optional<std::uint32_t> chunk_of(std::uint32_t frame) const { return frames_.find(frame); }

    // The pages of a chunk, in a buffer of the calling thread that the next call overwrites.
    std::span<const std::byte> unpack(std::size_t chunk) const;
    // Puts the pages of a chunk where its runs say. `image` is all of guest memory, state().frames * 4096
    // bytes. Nothing else of `image` is touched; on failure the chunk's frames may be half filled. Two
    // threads must not place the same chunk at once.
    void place(std::size_t chunk, std::span<const std::byte> pages, std::span<std::byte> image) const;
    void load_chunk(std::size_t chunk, std::span<std::byte> image) const { place(chunk, unpack(chunk), image); }

    // Checks the stored bytes of a chunk by its checksum, without decompressing them.
    void check_stored(std::size_t chunk) const;
    // Checks the content of all chunks.
    void verify() const;

private:
    SnapshotReader() = default;
    std::vector<std::byte> read_section(const format::Section& section, std::uint64_t offset, const char* name) const;
    void parse();
    // Decompresses a chunk into `raw`, its filter still applied.
    void decompress_chunk(std::size_t chunk, std::span<std::byte> raw) const;
    [[noreturn]] void bad(const std::string& why) const;

    std::filesystem::path path_;
    std::unique_ptr<ByteSource> source_;
    format::Header header_;
    Metadata metadata_;
    std::vector<ChunkInfo> chunks_;
    FrameMap frames_;
};

// Throws UserError (bad_snapshot) when the snapshot's guest kernel speaks another ABI than `abi`
// (tinykvm abi::kVersion).
void require_guest_abi(const SnapshotReader& reader, std::uint32_t abi);

} // namespace kvmserver
