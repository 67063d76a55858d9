// Reads snapshot files. They are untrusted.
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

// An open snapshot. Immutable; any number of threads may use it. Throws HostError when the host cannot read the file.
// All other failures are UserErrors of one line that begins with the file's name: not_found, not_permitted, or
// bad_snapshot for an error in its bytes.
class SnapshotReader {
public:
    // Checks everything except the content of the chunks.
    static SnapshotReader open(const std::filesystem::path& path);
    // The same for any source of bytes; `name` is for messages.
    static SnapshotReader open(std::unique_ptr<ByteSource> source, const std::filesystem::path& name);

    const std::filesystem::path& path() const { return path_; }
    // Name of a cached copy of the chunk's pages; nullopt in snapshots of earlier kvmservers, which have no SHA-256.
    // The digest is taken from the file unchecked; verify() checks it.
    std::optional<CopyName> copy_name(std::size_t chunk) const;
    std::uint64_t file_bytes() const { return header_.prefix.file_bytes; }
    std::uint32_t format_version() const { return header_.prefix.version; }
    const MadeWith& made_with() const { return metadata_.made_with; }
    const tinykvm::MachineState& state() const { return metadata_.machine; }

    // All chunks; hot ones first.
    std::span<const ChunkInfo> chunks() const { return chunks_; }
    // The chunk that fills the frame; nullopt when its page is zero.
    std::optional<std::uint32_t> chunk_of(std::uint32_t frame) const { return frames_.find(frame); }

    // Unpacks the pages of a chunk into a thread-local buffer, which the next call on the thread overwrites.
    std::span<const std::byte> unpack(std::size_t chunk) const;
    // Gives back the memory that such calls have taken on this thread.
    static void drop_buffers();
    // Copies the pages of a chunk to the frames of its runs and touches nothing else. `image` is all of guest memory,
    // state().frames * 4096 bytes. On failure the chunk's frames may be half filled. Two threads must not place the
    // same chunk at once.
    void place(std::size_t chunk, std::span<const std::byte> pages, std::span<std::byte> image) const;
    void load_chunk(std::size_t chunk, std::span<std::byte> image) const { place(chunk, unpack(chunk), image); }

    // Compares a chunk's stored bytes with their checksum, without decompressing them.
    void check_stored(std::size_t chunk) const;
    // Checks the content of all chunks, or of one.
    void verify() const;
    void verify(std::size_t chunk) const;

private:
    SnapshotReader() = default;
    std::vector<std::byte> read_section(const format::Section& section, std::uint64_t offset, const char* name) const;
    void parse();
    // Decompresses a chunk into `raw` without undoing its filter.
    void decompress_chunk(std::size_t chunk, std::span<std::byte> raw) const;
    [[noreturn]] void bad(const std::string& why) const;

    std::filesystem::path path_;
    std::unique_ptr<ByteSource> source_;
    format::Header header_;
    Metadata metadata_;
    std::vector<ChunkInfo> chunks_;
    FrameMap frames_;
};

// Throws UserError (bad_snapshot) when the snapshot's guest kernel has another ABI version than `abi` (tinykvm
// abi::kVersion).
void require_guest_abi(const SnapshotReader& reader, std::uint32_t abi);

} // namespace kvmserver
