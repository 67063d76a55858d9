#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <set>

#include "src/snapshot/codec.hpp"
#include "src/snapshot/compressed_chunk_cache.hpp"
#include "src/snapshot/format.hpp"
#include "src/snapshot/reader.hpp"
#include "src/snapshot/recompress.hpp"
#include "src/snapshot/writer.hpp"
#include "tests/catch.hpp"
#include "tests/unit/snapshot/files.hpp"
#include "tests/unit/snapshot/sample_state.hpp"

using namespace kvmserver;
using test::Bytes;

namespace {

constexpr std::uint32_t kSmall = 700, kLarge = 6800; // frames; more than 16 MiB of pages are compressed otherwise

const std::vector<std::uint32_t> kHot{5, 6, 7, 8, 300, 301};

void write(const std::filesystem::path& path, std::uint32_t frames, int level,
           const FolderCache& cache = FolderCache("")) {
    write_snapshot(path, test::sample_state(frames), test::make_memory(frames), kHot, level, -1, cache);
}

struct Done {
    std::optional<Pressed> pressed;
    Bytes file;
};

Done anew(const test::TempFolder& folder, const std::filesystem::path& path) {
    const auto out = folder / "anew";
    const int fd = ::open(out.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0);
    const tinykvm::UniqueFd closes(fd);
    Done done;
    done.pressed = recompress(*open_file_source(path), fd);
    done.file = test::read_file(out);
    return done;
}

} // namespace

TEST_CASE("a snapshot written in a hurry becomes what the default level gives, byte by byte") {
    const test::TempFolder folder;
    const std::uint32_t frames = GENERATE(kSmall, kLarge);
    CAPTURE(frames);
    write(folder / "quick", frames, kQuickLevel);
    write(folder / "default", frames, 0);
    const Bytes quick = test::read_file(folder / "quick"), wanted = test::read_file(folder / "default");
    CHECK(wanted.size() < quick.size());
    const Done done = anew(folder, folder / "quick");
    REQUIRE(done.pressed);
    CHECK((done.pressed->total_raw > 16u << 20) == (frames == kLarge));
    CHECK(done.file == wanted);
    CHECK(done.pressed->file_bytes == wanted.size());
    const auto reader = SnapshotReader::open(folder / "anew");
    reader.verify();
    for (const PressedChunk& chunk : done.pressed->chunks) {
        const auto at = std::ranges::find(reader.chunks(), chunk.offset, &ChunkInfo::offset);
        REQUIRE(at != reader.chunks().end());
        CHECK((at->sha256 == chunk.sha256 && at->stored == chunk.stored && at->hot == chunk.hot &&
               at->filter == chunk.filter));
    }
}

TEST_CASE("what was not written in a hurry stays as it is") {
    const test::TempFolder folder;
    const int level = GENERATE(0, 1, 19);
    CAPTURE(level);
    write(folder / "snapshot", kSmall, level);
    CHECK_FALSE(anew(folder, folder / "snapshot").pressed);
}

TEST_CASE("in a hurry, chunks that are known compressed hard are taken as they are, the others compressed once") {
    const test::TempFolder folder;
    const FolderCache cache(folder / "cache");
    write(folder / "quick", kLarge, kQuickLevel, cache);
    std::set<std::filesystem::path> kept;
    for (const auto& entry : std::filesystem::directory_iterator(folder / "cache"))
        kept.insert(entry.path());
    CHECK_FALSE(kept.empty());
    write(folder / "quick-again", kLarge, kQuickLevel, cache);
    CHECK(test::read_file(folder / "quick-again") == test::read_file(folder / "quick"));
    for (const auto& entry : std::filesystem::directory_iterator(folder / "cache"))
        CHECK(kept.contains(entry.path()));
    const Done done = anew(folder, folder / "quick");
    REQUIRE(done.pressed);
    const CompressedChunkCache known(cache, {0, done.pressed->total_raw});
    for (const PressedChunk& chunk : done.pressed->chunks) {
        const auto stored = std::span(done.file).subspan(chunk.offset, chunk.stored);
        known.keep(chunk.sha256, chunk.hot, {chunk.filter, {stored.begin(), stored.end()}});
    }
    write(folder / "again", kLarge, kQuickLevel, cache);
    CHECK(test::read_file(folder / "again") == done.file);
}

TEST_CASE("a damaged snapshot is not written anew") {
    const test::TempFolder folder;
    write(folder / "quick", kSmall, kQuickLevel);
    const Bytes whole = test::read_file(folder / "quick");
    std::mt19937 random(1);
    for (int i = 0; i < 200; ++i) {
        Bytes bytes = whole;
        bytes[random() % bytes.size()] ^= static_cast<std::byte>(1 + random() % 255);
        test::write_file(folder / "damaged", bytes);
        CHECK_THROWS_AS(anew(folder, folder / "damaged"), FormatError);
    }
}

TEST_CASE("the list of chunks comes back, and one that is not of its file is refused") {
    Pressed pressed;
    pressed.file_bytes = 5000;
    pressed.total_raw = 8192;
    pressed.chunks = {{sha256(std::string_view("a")), 128, 1000, true, Filter::none},
                      {sha256(std::string_view("b")), 1128, 3872, false, Filter::planes8}};
    const std::string text = to_text(pressed);
    CHECK(pressed_from_text(text, 5000) == pressed);
    CHECK(pressed_from_text(text.substr(0, 8), 5000).chunks.empty());
    CHECK_THROWS_AS(pressed_from_text(text, 4999), FormatError);
    CHECK_THROWS_AS(pressed_from_text(text.substr(1), 5000), FormatError);
    CHECK_THROWS_AS(pressed_from_text("", 5000), FormatError);
    std::string bent = text;
    bent[8 + 32 + 8 + 4] = 2; // neither hot nor cold
    CHECK_THROWS_AS(pressed_from_text(bent, 5000), FormatError);
    bent = text;
    bent[8 + 32 + 7] = 127; // far beyond
    CHECK_THROWS_AS(pressed_from_text(bent, 5000), FormatError);
    bent = text;
    bent[8 + 48 + 32] = 103; // the second begins within the first
    CHECK_THROWS_AS(pressed_from_text(bent, 5000), FormatError);
    bent = text;
    bent[8 + 32 + 8 + 5] = 5; // no such filter
    CHECK_THROWS_AS(pressed_from_text(bent, 5000), FormatError);
}
