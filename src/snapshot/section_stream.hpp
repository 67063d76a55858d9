// A section of a snapshot's file (metadata, index) that is inflated as it is read, and no further: however long it
// says to be, it costs little memory.
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
    // What a frame may ask for to be decompressed. The writer's frames need 4 MiB (compress_section).
    static constexpr unsigned kWindowLog = 23;

    // First compares the stored bytes with their checksum. `source` outlives this object. All of these throw
    // FormatError (`name` is the section's), HostError.
    SectionStream(const ByteSource& source, const format::Section& section, std::uint64_t offset, const char* name);
    // Up to so many bytes, at least one; 0 at the end of the section.
    std::size_t some(std::span<std::byte> bytes);
    void fill(std::span<std::byte> bytes); // all of them
    std::uint64_t left() const { return section_.raw - taken_; }
    // Throws unless the section has been read to its end and the frame ends there, too.
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
    std::size_t in_at_ = 0, in_end_ = 0; // of in_
    std::uint64_t read_at_, read_end_;   // in the file
    std::uint64_t taken_ = 0;
    bool complete_ = false; // a frame has just ended
};

// The checksum of a part of the file, read in blocks.
format::Checksum checksum_of(const ByteSource& source, std::uint64_t offset, std::uint64_t bytes);

} // namespace kvmserver
