#include "src/snapshot/facts.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <array>
#include <set>
#include <utility>

#include "src/snapshot/index_entry.hpp"
#include "src/snapshot/json_codec.hpp"
#include "src/snapshot/json_text.hpp"
#include "src/snapshot/metadata_checks.hpp"
#include "src/snapshot/metadata_walk.hpp"
#include "src/snapshot/section_stream.hpp"
#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/linux/listens_at.hpp"

namespace kvmserver {

template <>
struct Fields<SnapshotFacts> {
    using T = SnapshotFacts;
    static constexpr auto all() {
        return std::tuple{Field{"guest_abi", &T::guest_abi},
                          Field{"frames", &T::frames},
                          Field{"threads", &T::threads},
                          Field{"pieces", &T::pieces},
                          Field{"permissions", &T::permissions},
                          Field{"limits", &T::limits},
                          Field{"cwd", &T::cwd},
                          Field{"listeners", &T::listeners},
                          Field{"late_env", &T::late_env}};
    }
};

namespace {

constexpr std::size_t kOtherPieces = 3; // header, metadata, index
// Limits the number of chunks: some small ones for a small program, and beyond that 256 bytes per chunk on average
// (real chunks have tens of kilobytes). Otherwise a file of a megabyte could cost the store tens of thousands of files.
constexpr std::uint64_t kFreeChunks = 1024, kMinMeanChunk = 256; // bytes
// No chunk compressed by zstd is longer (ZSTD_compressBound).
constexpr std::uint64_t kMaxStored = std::uint64_t{format::kMaxChunkPages} * tinykvm::kPageSize * 257 / 256;

format::Header header_of(const ByteSource& source) {
    std::array<std::byte, format::kHeaderBytes> bytes;
    const std::uint64_t size = source.size();
    const auto header = std::span(bytes).first(static_cast<std::size_t>(std::min<std::uint64_t>(size, bytes.size())));
    source.read_at(0, header);
    return format::decode_header(header, size);
}

// Byte reader for decode_entry() on top of the stream.
class EntryBytes {
public:
    explicit EntryBytes(SectionStream& section) : section_(section) {}
    template <std::unsigned_integral T>
    T get() {
        T value;
        section_.fill(std::as_writable_bytes(std::span(&value, 1)));
        return value;
    }
    std::span<const std::byte> take(std::size_t count) {
        const auto bytes = std::span(buffer_).first(count);
        section_.fill(bytes);
        return bytes;
    }
    std::uint64_t left() const { return section_.left(); }

private:
    SectionStream& section_;
    std::array<std::byte, 16> buffer_; // size of a checksum
};

// Decodes the index entry by entry and compares each chunk with its checksum.
void examine_index(const ByteSource& source, const format::Header& header, SnapshotFacts& facts) {
    SectionStream section(source, header.index, header.index_at(), "index");
    EntryBytes in(section);
    std::vector<bool> filled(facts.frames); // at most 8 MiB
    std::uint64_t offset = format::kHeaderBytes;
    const std::uint64_t end = header.metadata_at();
    for (std::uint32_t i = 0; i < header.chunks; ++i) {
        const ChunkInfo chunk = decode_entry(in, i, facts.frames, [&](const ChunkRun& run) {
            for (std::uint32_t frame = run.first; frame < run.first + run.count; ++frame) {
                if (filled[frame])
                    throw FormatError(fmt::format("index is inconsistent: frame {} is stored twice", frame));
                filled[frame] = true;
            }
        });
        if (chunk.stored > end - offset)
            bad_entry(i, "is longer than the file");
        if (chunk.stored > kMaxStored)
            bad_entry(i, "has an impossible size");
        if (checksum_of(source, offset, chunk.stored) != chunk.checksum)
            throw FormatError(fmt::format("altered: chunk {} of guest memory does not match its checksum", i));
        facts.pieces.push_back(chunk.stored);
        offset += chunk.stored;
    }
    if (in.left() == std::uint64_t{header.chunks} * sizeof(Digest)) // digests are missing in files of earlier versions
        for (std::uint32_t i = 0; i < header.chunks; ++i) {
            in.take(sizeof(Digest) / 2);
            in.take(sizeof(Digest) / 2);
        }
    section.expect_end();
    if (offset != end)
        throw FormatError("index is inconsistent: its chunks do not make up the file");
}

} // namespace

SnapshotFacts examine_snapshot(const ByteSource& source, Depth depth) {
    const format::Header header = header_of(source);
    if (header.chunks > kMaxPieces - kOtherPieces ||
        header.chunks > kFreeChunks + header.prefix.file_bytes / kMinMeanChunk)
        throw FormatError(fmt::format("header is inconsistent: {} chunks are too many for its length", header.chunks));
    SnapshotFacts facts;
    {
        SectionStream section(source, header.metadata, header.metadata_at(), "metadata");
        Metadata metadata = walk_metadata(section);
        if (metadata.machine.guest_abi != header.prefix.guest_abi)
            throw FormatError("header is inconsistent: the metadata has another guest kernel ABI");
        facts.guest_abi = metadata.machine.guest_abi;
        facts.frames = metadata.machine.frames;
        facts.threads = metadata.machine.threads;
        facts.permissions = std::move(metadata.machine.permissions);
        facts.limits = metadata.machine.limits;
        facts.cwd = std::move(metadata.machine.program.cwd);
        facts.listeners = std::move(metadata.machine.listeners);
        facts.late_env = std::move(metadata.machine.late_env);
    }
    if (to_json_value(facts.permissions).dump().size() + facts.cwd.size() > kMaxPermissionsText)
        throw FormatError("metadata is inconsistent: it asks for too many permissions");
    if (depth == Depth::metadata)
        return facts;
    facts.pieces.push_back(format::kHeaderBytes);
    examine_index(source, header, facts);
    facts.pieces.push_back(header.metadata.stored);
    facts.pieces.push_back(header.index.stored);
    return facts;
}

SnapshotFacts examine_snapshot(int fd) {
    tinykvm::UniqueFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!own)
        tinykvm::throw_errno("fcntl(F_DUPFD_CLOEXEC)");
    return examine_snapshot(*open_file_source(std::move(own), "the snapshot"));
}

std::string to_text(const SnapshotFacts& facts) { return to_json_value(facts).dump(); }

SnapshotFacts facts_from_text(std::string_view text, Depth depth, std::uint64_t file_bytes) {
    if (text.size() > kMaxFactsText)
        throw FormatError("the facts are too long");
    JsonText json([&text] { return std::exchange(text, {}); });
    SnapshotFacts facts;
    const JsonPath place{nullptr, "facts", 0};
    std::set<std::string> seen;
    std::uint64_t sum = 0;
    const auto piece = [&](std::size_t index) {
        const JsonPath list{&place, "pieces", 0};
        std::uint64_t bytes = 0;
        from_json_value(json.value(), JsonPath{&list, nullptr, index}, bytes);
        if (bytes == 0 || bytes > file_bytes - sum || index >= kMaxPieces)
            list.bad("do not make up the file");
        sum += bytes;
        facts.pieces.push_back(bytes);
    };
    json.object([&](const std::string& name) {
        seen.insert(name);
        const auto take = [&](const auto& field) {
            if (name != field.name)
                return false;
            const JsonPath here{&place, field.name, 0};
            if constexpr (std::is_same_v<decltype(field.member), std::vector<std::uint64_t> SnapshotFacts::*>)
                json.array(piece, [&] { here.bad("is not a list"); });
            else
                from_json_value(json.value(), here, facts.*field.member);
            return true;
        };
        constexpr auto fields = Fields<SnapshotFacts>::all();
        if (!std::apply([&](const auto&... field) { return (take(field) || ...); }, fields))
            place.bad("have an unknown field");
    });
    json.expect_end();
    constexpr auto fields = Fields<SnapshotFacts>::all();
    if (seen.size() != std::tuple_size_v<decltype(fields)>)
        place.bad("lack a field");
    if (depth == Depth::whole ? sum != file_bytes : !facts.pieces.empty())
        JsonPath{&place, "pieces", 0}.bad("do not make up the file");
    if (facts.frames == 0 || facts.frames > format::kMaxFrames)
        JsonPath{&place, "frames", 0}.bad("is out of range");
    check_limits(facts.limits, JsonPath{&place, "limits", 0});
    const JsonPath listeners{&place, "listeners", 0};
    if (facts.listeners.size() > kWalkedListeners)
        listeners.bad("are too many");
    for (std::size_t i = 0; i < facts.listeners.size(); ++i)
        check_listener(facts.listeners[i], JsonPath{&listeners, nullptr, i});
    return facts;
}

std::optional<std::uint32_t> listener_at(const SnapshotFacts& facts, const sockaddr* to, socklen_t bytes) {
    for (const tinykvm::ListenerState& each : facts.listeners)
        if (!(each.flags & tinykvm::abi::kBindMessages) &&
            tinykvm::listens_at(each.address, (each.flags & tinykvm::abi::kBindV6Only) != 0, to, bytes))
            return each.id;
    return std::nullopt;
}

} // namespace kvmserver
