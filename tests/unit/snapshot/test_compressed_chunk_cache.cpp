#include <algorithm>

#include "src/snapshot/compressed_chunk_cache.hpp"
#include "src/snapshot/reader.hpp"
#include "src/snapshot/writer.hpp"
#include "tests/catch.hpp"
#include "tests/unit/snapshot/files.hpp"
#include "tests/unit/snapshot/sample_state.hpp"

using namespace kvmserver;
namespace fs = std::filesystem;

namespace {

std::size_t files_in(const fs::path& folder) {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

constexpr Effort kEffort{3, 100 << 20};

} // namespace

TEST_CASE("a chunk that was compressed before is found again, by its content and the effort") {
    const test::TempFolder folder;
    const CompressedChunkCache known(FolderCache(folder / "cache"), kEffort);
    const test::Bytes raw = test::make_memory(400, 1), other = test::make_memory(400, 2);
    const auto made = ChunkCompressor(kEffort).compress(raw, false);
    CHECK_FALSE(known.find(raw, sha256(raw), false));
    known.keep(sha256(raw), false, made);
    const auto again = known.find(raw, sha256(raw), false);
    REQUIRE(again);
    CHECK(again->filter == made.filter);
    CHECK(again->stored == made.stored);
    CHECK_FALSE(known.find(other, sha256(other), false));
    CHECK_FALSE(known.find(raw, sha256(raw), true));
    CHECK_FALSE(
        CompressedChunkCache(FolderCache(folder / "cache"), Effort{4, 100 << 20}).find(raw, sha256(raw), false));
    CHECK_FALSE(CompressedChunkCache(FolderCache(""), kEffort).find(raw, sha256(raw), false));
}

TEST_CASE("what does not decompress to the chunk is compressed anew") {
    const test::TempFolder folder;
    const FolderCache cache(folder / "cache");
    const CompressedChunkCache known(cache, kEffort);
    const test::Bytes raw = test::make_memory(400, 1);
    const auto made = ChunkCompressor(kEffort).compress(raw, false);
    known.keep(sha256(raw), false, made);
    REQUIRE(files_in(folder / "cache") == 1);
    const std::string name = fs::directory_iterator(folder / "cache")->path().stem().string();
    const auto instead = [&](const test::Bytes& bytes) { // sound as a file
        cache.write(name, bytes);
        REQUIRE(cache.read(name) == bytes);
    };
    const auto other = ChunkCompressor(kEffort).compress(test::make_memory(400, 2), false);
    test::Bytes of_other(1 + other.stored.size());
    of_other[0] = static_cast<std::byte>(other.filter);
    std::ranges::copy(other.stored, of_other.begin() + 1);
    instead(of_other);
    CHECK_FALSE(known.find(raw, sha256(raw), false));
    instead(test::Bytes{std::byte{0}, std::byte{1}, std::byte{2}});
    CHECK_FALSE(known.find(raw, sha256(raw), false));
    instead(test::Bytes(100, std::byte{99})); // no such filter
    CHECK_FALSE(known.find(raw, sha256(raw), false));
}

TEST_CASE("a snapshot is the same whether its chunks were known or not") {
    const test::TempFolder folder;
    const FolderCache cache(folder / "cache");
    const auto state = test::sample_state(3000);
    const auto memory = test::make_memory(3000, 5);
    write_snapshot(folder / "plain", state, memory, {}, 3);
    write_snapshot(folder / "first", state, memory, {}, 3, -1, cache);
    const std::size_t kept = files_in(folder / "cache");
    CHECK(kept > 0);
    write_snapshot(folder / "second", state, memory, {}, 3, -1, cache);
    CHECK(files_in(folder / "cache") == kept);
    const auto plain = SnapshotReader::open(folder / "plain");
    for (const char* name : {"first", "second"}) {
        const auto reader = SnapshotReader::open(folder / name);
        REQUIRE(reader.chunks().size() == plain.chunks().size());
        for (std::size_t i = 0; i < plain.chunks().size(); ++i)
            CHECK(reader.chunks()[i] == plain.chunks()[i]);
        CHECK_NOTHROW(reader.verify());
    }
}
