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
    const FolderCache cache(folder / "cache");
    const CompressedChunkCache known(cache, kEffort);
    const test::Bytes raw = test::make_memory(400, 1), other = test::make_memory(400, 2);
    const auto made = ChunkCompressor(kEffort).compress(raw, false);
    CHECK_FALSE(known.find(sha256(raw), false));
    known.keep(sha256(raw), false, made);
    const auto again = known.find(sha256(raw), false);
    REQUIRE(again);
    CHECK(again->filter == made.filter);
    CHECK(again->stored == made.stored);
    CHECK_FALSE(known.find(sha256(other), false));
    CHECK_FALSE(known.find(sha256(raw), true));
    CHECK_FALSE(CompressedChunkCache(cache, Effort{4, 100 << 20}).find(sha256(raw), false));
    CHECK_FALSE(CompressedChunkCache(cache, Effort{kQuickLevel, 100 << 20}).find(sha256(raw), false));
    CHECK_FALSE(CompressedChunkCache(FolderCache(""), kEffort).find(sha256(raw), false));
}

TEST_CASE("what is compressed fast at any effort is found at each") {
    const test::TempFolder folder;
    const FolderCache cache(folder / "cache");
    const CompressedChunkCache quick(cache, {kQuickLevel, 100 << 20}), hard(cache, {0, 100 << 20});
    const test::Bytes raw = test::make_memory(64, 1);
    const auto made = ChunkCompressor({kQuickLevel, 100 << 20}).compress(raw, true);
    REQUIRE(made.stored == ChunkCompressor({0, 100 << 20}).compress(raw, true).stored);
    quick.keep(sha256(raw), true, made);
    const auto hot = hard.find(sha256(raw), true);
    REQUIRE(hot);
    CHECK(hot->stored == made.stored);
    CHECK_FALSE(hard.find(sha256(raw), false)); // compressed hard
}

TEST_CASE("a file of the cache that was altered, cut, or is of another chunk is not used") {
    const test::TempFolder folder;
    const FolderCache cache(folder / "cache");
    const CompressedChunkCache known(cache, kEffort);
    const test::Bytes raw = test::make_memory(40, 1), other = test::make_memory(40, 2);
    known.keep(sha256(raw), false, ChunkCompressor(kEffort).compress(raw, false));
    REQUIRE(files_in(folder / "cache") == 1);
    const std::string name = fs::directory_iterator(folder / "cache")->path().stem().string();
    const auto bytes_in = [&](const std::string& file) {
        const auto bytes = cache.read(file).value();
        return test::Bytes(bytes.begin(), bytes.end());
    };
    const test::Bytes whole = bytes_in(name);
    const auto found_with = [&](const test::Bytes& bytes) { // sound as a file
        cache.write(name, bytes);
        REQUIRE(bytes_in(name) == bytes);
        return known.find(sha256(raw), false).has_value();
    };
    for (std::size_t at = 0; at < whole.size(); at += at < 100 ? 1 : whole.size() / 20) {
        test::Bytes bytes = whole;
        bytes[at] ^= std::byte{1};
        CHECK_FALSE(found_with(bytes));
        CHECK_FALSE(found_with({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(at)}));
    }
    CHECK(found_with(whole));
    known.keep(sha256(other), false, ChunkCompressor(kEffort).compress(other, false));
    for (const auto& entry : fs::directory_iterator(folder / "cache"))
        if (entry.path().stem() != name)
            CHECK_FALSE(found_with(bytes_in(entry.path().stem().string())));
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
