#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "src/snapshot/reader.hpp"
#include "src/snapshot/unpacked.hpp"
#include "src/snapshot/writer.hpp"
#include "tests/catch.hpp"
#include "tests/unit/snapshot/files.hpp"
#include "tests/unit/snapshot/sample_state.hpp"

using namespace kvmserver;
namespace fs = std::filesystem;

namespace {

void make_snapshot(const fs::path& path, unsigned seed, std::uint32_t frames = 3000) {
    std::vector<std::uint32_t> hot(frames / 2);
    std::iota(hot.begin(), hot.end(), 0u);
    write_snapshot(path, test::sample_state(frames), test::make_memory(frames, seed), hot, 1);
}

std::vector<fs::path> copies_in(const fs::path& folder) {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder))
        found.push_back(entry.path());
    std::ranges::sort(found);
    return found;
}

// Of the hot chunks how many the copy has, each checked against the snapshot.
std::size_t sound_chunks(const SnapshotReader& reader, const UnpackedCopy& copy) {
    std::size_t sound = 0;
    for (std::size_t i = 0; i < reader.chunks().size() && reader.chunks()[i].hot; ++i) {
        const auto kept = copy.chunk(i);
        if (kept.empty())
            continue;
        const test::Bytes mine(kept.begin(), kept.end());
        const auto unpacked = reader.unpack(i);
        CHECK(std::ranges::equal(mine, unpacked));
        ++sound;
    }
    return sound;
}

} // namespace

TEST_CASE("an unpacked copy holds what the hot chunks hold, and only those") {
    const test::TempFolder folder;
    make_snapshot(folder / "app.snap", 1);
    const UnpackedCache cache(folder / "cache");
    const auto reader = SnapshotReader::open(folder / "app.snap");
    CHECK_FALSE(cache.find(reader));
    REQUIRE(cache.keep(reader));
    const auto copy = cache.find(reader);
    REQUIRE(copy);
    const auto hot = static_cast<std::size_t>(std::ranges::count(reader.chunks(), true, &ChunkInfo::hot));
    REQUIRE(hot < reader.chunks().size());
    CHECK(sound_chunks(reader, *copy) == hot);
    CHECK(copy->chunk(hot).empty());
    struct stat info {};
    REQUIRE(::stat(copies_in(folder / "cache").front().c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0600);
}

TEST_CASE("a copy is of one file in one state") {
    const test::TempFolder folder;
    make_snapshot(folder / "app.snap", 1);
    make_snapshot(folder / "other.snap", 2);
    const UnpackedCache cache(folder / "cache");
    REQUIRE(cache.keep(SnapshotReader::open(folder / "app.snap")));
    CHECK_FALSE(cache.find(SnapshotReader::open(folder / "other.snap")));
    fs::rename(folder / "other.snap", folder / "app.snap");
    CHECK_FALSE(cache.find(SnapshotReader::open(folder / "app.snap")));
}

TEST_CASE("what is altered in a copy is not taken from it") {
    const test::TempFolder folder;
    make_snapshot(folder / "app.snap", 1);
    const UnpackedCache cache(folder / "cache");
    const auto reader = SnapshotReader::open(folder / "app.snap");
    REQUIRE(cache.keep(reader));
    const fs::path path = copies_in(folder / "cache").front();
    const test::Bytes whole = test::read_file(path);
    const std::size_t all = sound_chunks(reader, *cache.find(reader));
    const auto with_byte = [&](std::size_t at) {
        test::Bytes altered = whole;
        altered[at] ^= std::byte{4};
        test::write_file(path, altered);
        const auto copy = cache.find(reader);
        return copy ? sound_chunks(reader, *copy) : 0;
    };
    CHECK(with_byte(0) == 0);
    CHECK(with_byte(20) == 0);
    CHECK(with_byte(70) == 0);
    CHECK(with_byte(whole.size() - 1) == all - 1);
    CHECK(with_byte(whole.size() / 2) == all - 1);
    test::write_file(path, std::span(whole).first(whole.size() / 2));
    CHECK(sound_chunks(reader, *cache.find(reader)) < all);
    test::write_file(path, std::span(whole).first(10));
    CHECK_FALSE(cache.find(reader));
}

TEST_CASE("a folder that others could write to or read is not used") {
    const test::TempFolder folder;
    make_snapshot(folder / "app.snap", 1);
    const auto reader = SnapshotReader::open(folder / "app.snap");
    const UnpackedCache cache(folder / "cache");
    REQUIRE(cache.keep(reader));
    fs::permissions(folder / "cache", fs::perms(0755));
    CHECK_FALSE(cache.find(reader));
    CHECK_FALSE(cache.keep(reader));
    fs::create_directory_symlink("cache", folder / "link");
    fs::permissions(folder / "cache", fs::perms(0700));
    CHECK_FALSE(UnpackedCache(folder / "link").find(reader));
    CHECK(cache.find(reader));
    CHECK_FALSE(UnpackedCache("").keep(reader));
    CHECK_FALSE(UnpackedCache(folder / "no" / "such" / "folder").keep(reader));
}

TEST_CASE("the longest unused copies make room") {
    const test::TempFolder folder;
    std::vector<SnapshotReader> readers;
    for (const char* name : {"a", "b", "c"}) {
        make_snapshot(folder / name, 7);
        readers.push_back(SnapshotReader::open(folder / name));
    }
    REQUIRE(UnpackedCache(folder / "cache").keep(readers[0]));
    const auto one = fs::file_size(copies_in(folder / "cache").front());
    const UnpackedCache cache(folder / "cache", 2 * one);
    REQUIRE(cache.keep(readers[1]));
    for (const auto& path : copies_in(folder / "cache")) // both long ago; then the first is used
        fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
    REQUIRE(cache.find(readers[0]));
    REQUIRE(cache.keep(readers[2]));
    CHECK(cache.find(readers[0]));
    CHECK_FALSE(cache.find(readers[1]));
    CHECK(cache.find(readers[2]));
    CHECK_FALSE(UnpackedCache(folder / "cache", one - 1).keep(readers[0])); // larger than all room
}

TEST_CASE("a small hot part is not worth a copy") {
    const test::TempFolder folder;
    make_snapshot(folder / "app.snap", 1, 200);
    CHECK_FALSE(UnpackedCache(folder / "cache").keep(SnapshotReader::open(folder / "app.snap")));
    CHECK_FALSE(fs::exists(folder / "cache"));
}
