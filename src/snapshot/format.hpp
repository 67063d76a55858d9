// The fixed parts of a snapshot file (FORMAT.md): constants, header, errors.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

struct XXH3_state_s;

namespace kvmserver {

// An error in a file's bytes, without the file's name; reader.cpp turns it into a UserError.
class FormatError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

namespace format {

inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::array<std::uint8_t, 8> kMagic{0x89, 'K', 'V', 'M', '\r', '\n', 0x1a, '\n'};
inline constexpr std::size_t kPrefixBytes = 32; // the part of the header that every version shares
inline constexpr std::size_t kHeaderBytes = 128;

// Limits that make a hostile file harmless; the writer refuses to exceed them.
inline constexpr std::uint32_t kMaxFrames = 1u << 26; // 256 GiB of guest memory
inline constexpr std::uint32_t kMaxChunkPages = 1024;
inline constexpr std::uint64_t kMaxJsonBytes = 16ull << 20;
inline constexpr std::uint64_t kMaxContentBytes = 1ull << 30; // of all memfds together
inline constexpr std::uint64_t kMaxMetadataBytes = 4 + kMaxJsonBytes + kMaxContentBytes;
inline constexpr std::uint64_t kMaxIndexBytes = 256ull << 20;

struct Checksum { // XXH3-128, canonical (big-endian) bytes
    std::array<std::uint8_t, 16> bytes{};
    bool operator==(const Checksum&) const = default;
};
Checksum checksum_of(std::span<const std::byte> bytes);

// Incremental checksum.
class RunningChecksum {
public:
    RunningChecksum();
    void add(std::span<const std::byte> bytes);
    Checksum finish() const;

private:
    struct Free {
        void operator()(XXH3_state_s* state) const;
    };
    std::unique_ptr<XXH3_state_s, Free> state_;
};

// A zstd frame in the file.
struct Section {
    std::uint64_t stored = 0, raw = 0;
    Checksum checksum;
    bool operator==(const Section&) const = default;
};

// The beginning of the header, the same in every version of the format.
struct Prefix {
    std::uint32_t version = kVersion;
    std::uint32_t guest_abi = 0;
    std::uint64_t file_bytes = 0;
};

struct Header {
    Prefix prefix;
    Section metadata, index;
    std::uint64_t chunk_bytes = 0; // of all chunks as stored
    std::uint32_t chunks = 0;
    std::uint64_t metadata_at() const { return kHeaderBytes + chunk_bytes; }
    std::uint64_t index_at() const { return metadata_at() + metadata.stored; }
};

std::array<std::byte, kHeaderBytes> encode(const Header& header);
// `bytes` holds the file's first bytes, as far as there are any; `file_bytes` is the file's size. All of these throw
// FormatError.
Prefix decode_prefix(std::span<const std::byte> bytes, std::uint64_t file_bytes);
Header decode_header(std::span<const std::byte> bytes, std::uint64_t file_bytes); // format kVersion only

} // namespace format
} // namespace kvmserver
