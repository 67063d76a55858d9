#include "src/snapshot/format.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "src/snapshot/bytes.hpp"

namespace kvmserver::format {

namespace {

void put(ByteWriter& out, const Section& section) {
    out.put(section.stored);
    out.put(section.raw);
    out.put(std::as_bytes(std::span(section.checksum.bytes)));
}

Checksum get_checksum(ByteReader& in) {
    Checksum checksum;
    const auto bytes = in.take(sizeof checksum.bytes);
    std::memcpy(checksum.bytes.data(), bytes.data(), bytes.size());
    return checksum;
}

Section get_section(ByteReader& in) {
    Section section;
    section.stored = in.get<std::uint64_t>();
    section.raw = in.get<std::uint64_t>();
    section.checksum = get_checksum(in);
    return section;
}

void check_section(const Section& section, const char* name, std::uint64_t max_raw, std::uint64_t& room) {
    if (section.stored > room)
        throw FormatError(fmt::format("header is inconsistent: the {} is longer than the file", name));
    room -= section.stored;
    if (section.raw > max_raw)
        throw FormatError(fmt::format("header is inconsistent: the {} is too long", name));
}

} // namespace

namespace {
Checksum canonical(XXH128_hash_t hash) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    Checksum checksum;
    static_assert(sizeof canonical.digest == sizeof checksum.bytes);
    std::memcpy(checksum.bytes.data(), canonical.digest, sizeof canonical.digest);
    return checksum;
}
} // namespace

Checksum checksum_of(std::span<const std::byte> bytes) { return canonical(XXH3_128bits(bytes.data(), bytes.size())); }

void RunningChecksum::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

RunningChecksum::RunningChecksum() : state_(XXH3_createState()) {
    if (!state_ || XXH3_128bits_reset(state_.get()) != XXH_OK)
        throw std::bad_alloc();
}

void RunningChecksum::add(std::span<const std::byte> bytes) {
    XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
}

Checksum RunningChecksum::finish() const { return canonical(XXH3_128bits_digest(state_.get())); }

std::array<std::byte, kHeaderBytes> encode(const Header& header) {
    ByteWriter out;
    out.put(std::as_bytes(std::span(kMagic)));
    out.put(header.prefix.version);
    out.put(header.prefix.guest_abi);
    out.put(header.prefix.file_bytes);
    out.put(std::uint64_t{XXH3_64bits(out.bytes().data(), out.bytes().size())});
    put(out, header.metadata);
    put(out, header.index);
    out.put(header.chunk_bytes);
    out.put(header.chunks);
    out.put(std::uint32_t{0});
    const Checksum checksum = checksum_of(out.bytes());
    out.put(std::as_bytes(std::span(checksum.bytes)));
    std::array<std::byte, kHeaderBytes> bytes;
    std::copy(out.bytes().begin(), out.bytes().end(), bytes.begin());
    return bytes;
}

Prefix decode_prefix(std::span<const std::byte> bytes, std::uint64_t file_bytes) {
    const std::size_t magic = std::min(bytes.size(), kMagic.size());
    if (magic == 0)
        throw FormatError("not a snapshot: the file is empty");
    if (std::memcmp(bytes.data(), kMagic.data(), magic) != 0)
        throw FormatError("not a snapshot");
    if (bytes.size() < kPrefixBytes)
        throw FormatError(fmt::format("truncated: only the first {} bytes are there", bytes.size()));
    ByteReader in(bytes.first(kPrefixBytes), "header");
    in.take(kMagic.size());
    Prefix prefix;
    prefix.version = in.get<std::uint32_t>();
    prefix.guest_abi = in.get<std::uint32_t>();
    prefix.file_bytes = in.get<std::uint64_t>();
    if (in.get<std::uint64_t>() != XXH3_64bits(bytes.data(), kPrefixBytes - 8))
        throw FormatError("altered: the header does not match its checksum");
    if (prefix.version > kVersion)
        throw FormatError(fmt::format("written by a newer kvmserver: format {}, this one reads format {}; "
                                      "use that version, or make the snapshot again",
                                      prefix.version, kVersion));
    if (prefix.version < kVersion)
        throw FormatError(fmt::format("format {} is not supported; make the snapshot again", prefix.version));
    if (file_bytes < prefix.file_bytes)
        throw FormatError(
            fmt::format("truncated: {} of {} bytes are missing", prefix.file_bytes - file_bytes, prefix.file_bytes));
    if (file_bytes > prefix.file_bytes)
        throw FormatError(fmt::format("altered: {} bytes too many at its end", file_bytes - prefix.file_bytes));
    return prefix;
}

Header decode_header(std::span<const std::byte> bytes, std::uint64_t file_bytes) {
    Header header;
    header.prefix = decode_prefix(bytes, file_bytes);
    if (bytes.size() < kHeaderBytes)
        throw FormatError("header is inconsistent: the file is shorter than it");
    const auto covered = bytes.first(kHeaderBytes - sizeof(Checksum));
    ByteReader in(bytes.first(kHeaderBytes), "header");
    in.take(kPrefixBytes);
    header.metadata = get_section(in);
    header.index = get_section(in);
    header.chunk_bytes = in.get<std::uint64_t>();
    header.chunks = in.get<std::uint32_t>();
    const auto reserved = in.get<std::uint32_t>();
    if (get_checksum(in) != checksum_of(covered))
        throw FormatError("altered: the header does not match its checksum");
    if (reserved != 0)
        throw FormatError("header is inconsistent: reserved bytes are not zero");
    std::uint64_t room = file_bytes - kHeaderBytes;
    check_section(header.metadata, "metadata", kMaxMetadataBytes, room);
    check_section(header.index, "index", kMaxIndexBytes, room);
    if (header.chunk_bytes != room)
        throw FormatError("header is inconsistent: its parts do not make up the file");
    return header;
}

} // namespace kvmserver::format
