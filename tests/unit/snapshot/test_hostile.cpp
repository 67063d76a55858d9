// Files made on purpose: all checksums are right, and what they say is not.
#include <cstring>
#include <functional>

#include "src/snapshot/bytes.hpp"
#include "src/snapshot/codec.hpp"
#include "src/snapshot/facts.hpp"
#include "src/snapshot/reader.hpp"
#include "tests/catch.hpp"
#include "tests/unit/snapshot/bendable.hpp"
#include "tests/unit/snapshot/matchers.hpp"
#include "tests/unit/snapshot/sample_state.hpp"

using namespace kvmserver;
using test::Bytes;
using test::Contains;
using test::kFrames;
using test::Sample;
using tinykvm::ExitCode;

namespace {

std::string message_of(const test::Parts& parts) {
    const test::TempFolder folder;
    const auto path = folder / "hostile.snap";
    test::write_file(path, test::assemble(parts));
    const auto outcome = test::check_file(path);
    if (const auto opened = test::outcome_of([&] { SnapshotReader::open(path); }); opened.code != ExitCode::ok) {
        INFO(opened.message);
        CHECK_THROWS_AS(examine_snapshot(*open_file_source(path)), FormatError);
    }
    CHECK((outcome.code == ExitCode::ok || outcome.code == ExitCode::bad_snapshot));
    CHECK(outcome.message.find('\n') == std::string::npos);
    return outcome.message;
}

std::string with_chunks(const std::function<void(std::vector<ChunkInfo>&)>& change) {
    Sample sample;
    change(sample.chunks);
    return message_of(sample.parts());
}

std::string with_header(const std::function<void(format::Header&)>& change) {
    auto parts = Sample().parts();
    parts.change_header = change;
    return message_of(parts);
}

} // namespace

TEST_CASE("the sample itself is good") { CHECK(message_of(Sample().parts()) == ""); }

TEST_CASE("runs") {
    CHECK_THAT(with_chunks([](auto& c) { c[1].runs[0].first = 9; }), Contains("frame 9 is stored twice"));
    CHECK_THAT(with_chunks([](auto& c) { c[1].runs.push_back(c[1].runs[0]); }), Contains("stored twice"));
    CHECK_THAT(with_chunks([](auto& c) { c[1].runs.push_back({2, 1, 0}); }), Contains("frame 2 is stored twice"));
    CHECK_THAT(with_chunks([](auto& c) { c[0].runs[0].first = kFrames; }), Contains("outside of guest memory"));
    CHECK_THAT(with_chunks([](auto& c) { c[0].runs[0].first = kFrames - 7; }), Contains("outside of guest memory"));
    CHECK_THAT(with_chunks([](auto& c) { c[0].runs[0].first = 0xfffffffc; }), Contains("outside of guest memory"));
    CHECK_THAT(with_chunks([](auto& c) { c[0].runs[0].count = 9; }), Contains("outside of its pages"));
    CHECK_THAT(with_chunks([](auto& c) { c[0].runs[0].count = 0; }), Contains("outside of its pages"));
    CHECK_THAT(with_chunks([](auto& c) { c[0].runs[0].count = ~0u; }), Contains("outside of its pages"));
    CHECK_THAT(with_chunks([](auto& c) { c[0].runs[0].page = 1; }), Contains("outside of its pages"));
    CHECK_THAT(with_chunks([](auto& c) { c[0].runs[0].page = ~0u; }), Contains("outside of its pages"));
    CHECK_THAT(with_chunks([](auto& c) { c[0].runs[0].count = 7; }), Contains("pages that belong nowhere"));
    CHECK_THAT(with_chunks([](auto& c) { c[0].runs.clear(); }), Contains("pages that belong nowhere"));
    // What one may well do: two frames with one content.
    CHECK(with_chunks([](auto& c) { c[0].runs.push_back({40, 3, 5}); }) == "");
}

TEST_CASE("lengths of chunks") {
    CHECK_THAT(with_chunks([](auto& c) { c[0].pages = 9, c[0].runs[0] = {40, 9, 0}; }), Contains("decompress"));
    CHECK_THAT(with_chunks([](auto& c) { c[0].pages = 7, c[0].runs[0] = {40, 7, 0}; }), Contains("decompress"));
    CHECK_THAT(with_chunks([](auto& c) { c[0].pages = 0; }), Contains("impossible size"));
    CHECK_THAT(with_chunks([](auto& c) { c[0].pages = 1025; }), Contains("impossible size"));
    CHECK_THAT(with_chunks([](auto& c) { c[0].stored = 0; }), Contains("impossible size"));
    CHECK_THAT(with_chunks([](auto& c) { c[0].stored = ~0u; }), Contains("longer than the file"));
    CHECK_THAT(with_chunks([](auto& c) { c[1].stored -= 1; }), Contains("do not make up the file"));
    CHECK_THAT(with_chunks([](auto& c) { c[0].stored -= 1, c[1].stored += 1; }), Contains("checksum"));
    CHECK_THAT(with_chunks([](auto& c) { c[0].filter = static_cast<Filter>(5); }), Contains("flags"));
}

TEST_CASE("chunks that decompress to more, or that are no zstd at all") {
    Sample bomb;
    bomb.add_chunk(compress_section(Bytes(64 << 20)), 1); // 64 MiB, said to be a page
    bomb.chunks.back().runs = {{50, 1, 0}};
    CHECK_THAT(message_of(bomb.parts()), Contains("chunk 2 of guest memory does not decompress to its length"));
    Sample noise;
    noise.add_chunk(test::to_bytes("not zstd"), 1);
    noise.chunks.back().runs = {{50, 1, 0}};
    CHECK_THAT(message_of(noise.parts()), Contains("chunk 2 of guest memory does not decompress to its length"));
    Sample skippable; // a frame without content
    skippable.add_chunk(test::to_bytes(std::string_view("\x50\x2a\x4d\x18\x04\x00\x00\x00"
                                                        "abcd",
                                                        12)),
                        1);
    skippable.chunks.back().runs = {{50, 1, 0}};
    CHECK_THAT(message_of(skippable.parts()), Contains("does not decompress to its length"));
}

TEST_CASE("the index as bytes") {
    auto parts = Sample().parts();
    const auto index = parts.index;
    parts.index.pop_back();
    CHECK_THAT(message_of(parts), Contains("index is inconsistent"));
    parts.index = index;
    parts.index.push_back(std::byte{0});
    CHECK_THAT(message_of(parts), Contains("index is inconsistent: it is too long"));
    parts.index = index;
    for (const std::uint32_t count : {0u, 1u, 3u, ~0u}) {
        parts.chunk_count = count;
        CHECK_THAT(message_of(parts), Contains("index is inconsistent"));
    }
    parts.chunk_count = 2;
    std::memset(&parts.index[8], 0xff, 4); // the number of runs
    CHECK_THAT(message_of(parts), Contains("too many runs"));
    parts.index = index;
    parts.index[6] = std::byte{2};
    CHECK_THAT(message_of(parts), Contains("flags"));
}

TEST_CASE("the SHA-256 of each chunk's pages") {
    const auto right = [](std::vector<ChunkInfo>& chunks) {
        for (std::uint8_t i = 0; i < 2; ++i)
            chunks[i].sha256 = sha256(Bytes(8 * 4096, static_cast<std::byte>(i + 1)));
    };
    CHECK(with_chunks(right) == "");
    CHECK_THAT(with_chunks([&](auto& chunks) {
                   right(chunks);
                   chunks[1].sha256 = chunks[0].sha256; // another's, whose pages it might be given
               }),
               Contains("altered: the pages of chunk 1 do not match their SHA-256"));
    CHECK_THAT(with_chunks([&](auto& chunks) {
                   right(chunks);
                   chunks[1].sha256.reset(); // of one of them only
               }),
               Contains("index is inconsistent: it is too long"));
}

TEST_CASE("the header") {
    using format::Header;
    CHECK_THAT(with_header([](Header& h) { h.prefix.version = 2; }),
               Contains("written by a newer kvmserver: format 2, this one reads format 1"));
    CHECK_THAT(with_header([](Header& h) { h.prefix.version = 0; }), Contains("format 0 is not supported"));
    CHECK_THAT(with_header([](Header& h) { h.prefix.guest_abi = 8; }), Contains("another guest kernel ABI"));
    CHECK_THAT(with_header([](Header& h) { h.prefix.file_bytes = 0; }), Contains("too many at its end"));
    CHECK_THAT(with_header([](Header& h) { h.prefix.file_bytes = ~0ull; }), Contains("truncated"));
    for (auto section : {&Header::metadata, &Header::index}) {
        CHECK_THAT(with_header([&](Header& h) { (h.*section).stored = ~0ull; }), Contains("longer than the file"));
        CHECK_THAT(with_header([&](Header& h) { (h.*section).stored += 1; }), Contains("do not make up the file"));
        CHECK_THAT(with_header([&](Header& h) { (h.*section).stored -= 1; }), Contains("do not make up the file"));
        CHECK_THAT(with_header([&](Header& h) { (h.*section).raw = ~0ull; }), Contains("is too long"));
        CHECK_THAT(with_header([&](Header& h) { (h.*section).raw += 1; }), Contains("does not decompress"));
        CHECK_THAT(with_header([&](Header& h) { (h.*section).raw -= 1; }), Contains("does not decompress"));
        CHECK_THAT(with_header([&](Header& h) { (h.*section).raw = 0; }), Contains("does not decompress"));
    }
    CHECK_THAT(with_header([](Header& h) { h.chunk_bytes = ~0ull; }), Contains("do not make up the file"));
    CHECK_THAT(with_header([](Header& h) { h.chunk_bytes -= 1, h.metadata.stored += 1; }), Contains("checksum"));
}

TEST_CASE("metadata that does not fit the chunks") {
    Sample sample;
    sample.state.frames = 10;
    sample.state.free_frames.clear();
    sample.state.working_set.clear();
    CHECK_THAT(message_of(sample.parts()), Contains("outside of guest memory"));
}

TEST_CASE("random bytes for the index and the metadata") {
    unsigned seed = 1;
    for (int i = 0; i < 300; ++i) {
        auto parts = Sample().parts();
        Bytes& victim = i % 2 ? parts.index : parts.metadata;
        for (int k = 0; k < 3; ++k) {
            seed = seed * 1103515245 + 12345;
            victim[(seed >> 8) % victim.size()] = static_cast<std::byte>(seed >> 24);
        }
        message_of(parts); // an error or not, but nothing else
    }
}

TEST_CASE("a snapshot for another guest kernel") {
    const test::TempFolder folder;
    test::write_file(folder / "a", test::assemble(Sample().parts()));
    const auto reader = SnapshotReader::open(folder / "a");
    CHECK_NOTHROW(require_guest_abi(reader, 7));
    const auto outcome = test::outcome_of([&] { require_guest_abi(reader, 8); });
    CHECK(outcome.code == ExitCode::bad_snapshot);
    CHECK_THAT(outcome.message, Contains("made for guest kernel ABI 7, and this kvmserver has 8"));
}
