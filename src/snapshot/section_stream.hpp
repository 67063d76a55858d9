// Decompresses a section of a snapshot file (metadata, index) as it is read, so that memory use does not depend on its
// claimed length.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/snapshot/byte_source.hpp"
#include "src/snapshot/format.hpp"

struct ZSTD_DCtx_s;

namespace kvmserver {

class SectionStream {
public:
    // The largest window that a frame may require for decompression. The writer's frames need 4 MiB (compress_section).
    static constexpr unsigned kWindowLog = 23;

    // First compares the stored bytes with their checksum. `source` must outlive this object. All of these throw
    // FormatError (with `name` for the section) and HostError.
    SectionStream(const ByteSource& source, const format::Section& section, std::uint64_t offset, const char* name);
    // Reads up to bytes.size() bytes, at least one; returns 0 at the end of the section.
    std::size_t some(std::span<std::byte> bytes);
    void fill(std::span<std::byte> bytes); // fills all of `bytes`
    std::uint64_t left() const { return section_.raw - taken_; }
    // Throws unless the section has been read to its end and the zstd frame ends there, too.
    void expect_end();

private:
    struct Free {
        void operator()(ZSTD_DCtx_s* context) const;
    };
    [[noreturn]] void wrong_length() const;
    std::size_t inflate(std::span<std::byte> bytes);

    const ByteSource& source_;
    const format::Section section_;
    const char* const name_;
    std::unique_ptr<ZSTD_DCtx_s, Free> context_;
    std::vector<std::byte> in_;
    std::size_t in_at_ = 0, in_end_ = 0; // positions in in_
    std::uint64_t read_at_, read_end_;   // positions in the file
    std::uint64_t taken_ = 0;
    bool complete_ = false; // a zstd frame has just ended
};

// Checksum of a range of the source, read in blocks.
format::Checksum checksum_of(const ByteSource& source, std::uint64_t offset, std::uint64_t bytes);

} // namespace kvmserver
