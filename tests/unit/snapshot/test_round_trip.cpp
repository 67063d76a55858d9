#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "src/snapshot/reader.hpp"
#include "src/snapshot/writer.hpp"
#include "tests/catch.hpp"
#include "tests/unit/snapshot/files.hpp"
#include "tests/unit/snapshot/sample_state.hpp"
#include "tinykvm/base/mapping.hpp"

using namespace kvmserver;
using test::Bytes;

namespace {

Bytes load_all(const SnapshotReader& reader) {
    Bytes image(std::size_t{reader.state().frames} * 4096);
    for (std::size_t i = 0; i < reader.chunks().size(); ++i)
        reader.load_chunk(i, image);
    return image;
}

std::vector<std::uint32_t> some_frames(std::uint32_t frames, std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::uint32_t> list;
    for (std::size_t i = 0; i < count; ++i)
        list.push_back(static_cast<std::uint32_t>(random() % frames));
    return list;
}

} // namespace

TEST_CASE("memory comes back as it was, at every level") {
    const test::TempFolder folder;
    const auto path = folder / "app.snap";
    constexpr std::uint32_t frames = 700;
    const Bytes memory = test::make_memory(frames);
    for (const int level : {0, 1, 9, 22}) {
        CAPTURE(level);
        const auto summary =
            write_snapshot(path, test::sample_state(frames), memory, some_frames(frames, 200, 3), level);
        const auto reader = SnapshotReader::open(path);
        reader.verify();
        CHECK(load_all(reader) == memory);
        CHECK(summary.file_bytes == std::filesystem::file_size(path));
        CHECK(summary.stored_pages + summary.zero_pages + summary.copied_pages == frames);
        CHECK(summary.zero_pages > frames / 8);
        CHECK(summary.copied_pages > 0);
        CHECK(summary.chunks == reader.chunks().size());
        CHECK(reader.state().handles == test::sample_state(frames).handles);
        CHECK(reader.made_with() == this_version());
    }
}

TEST_CASE("the same input gives the same file, and the digest is that of the file") {
    const test::TempFolder folder;
    constexpr std::uint32_t frames = 2000;
    const Bytes memory = test::make_memory(frames);
    const auto hot = some_frames(frames, 300, 4);
    const auto first = write_snapshot(folder / "1", test::sample_state(frames), memory, hot, 3);
    const auto second = write_snapshot(folder / "2", test::sample_state(frames), memory, hot, 3);
    CHECK(first.sha256 == second.sha256);
    CHECK(test::read_file(folder / "1") == test::read_file(folder / "2"));
    const std::string command = "sha256sum " + (folder / "1").string();
    FILE* pipe = ::popen(command.c_str(), "r");
    REQUIRE(pipe);
    char digest[65] = "";
    CHECK(std::fread(digest, 1, 64, pipe) == 64);
    ::pclose(pipe);
    CHECK(first.sha256 == digest);
}

TEST_CASE("hot frames come first, in order of first use, in chunks of their own") {
    const test::TempFolder folder;
    constexpr std::uint32_t frames = 600;
    Bytes memory(std::size_t{frames} * 4096);
    for (std::uint32_t frame = 1; frame < frames; ++frame) // different, but for frame 0, which is zero
        std::memcpy(&memory[std::size_t{frame} * 4096 + 8], &frame, 4);
    std::vector<std::uint32_t> hot{599, 0, 5, 5, 4000000000u};
    for (std::uint32_t frame = 100; frame < 200; ++frame)
        hot.push_back(frame);
    const auto summary = write_snapshot(folder / "a", test::sample_state(frames), memory, hot);
    const auto reader = SnapshotReader::open(folder / "a");
    const auto chunks = reader.chunks();
    REQUIRE(summary.hot_chunks >= 2);
    REQUIRE(chunks.size() > summary.hot_chunks);
    for (std::size_t i = 0; i < chunks.size(); ++i)
        CHECK(chunks[i].hot == (i < summary.hot_chunks));
    const auto more = static_cast<std::uint32_t>(chunks[0].pages - 2); // after 599 and 5, the first in the list
    CHECK(chunks[0].runs == std::vector<ChunkRun>{{5, 1, 0}, {100, more, 1}, {599, 1, more + 1}});
    CHECK(chunks[1].runs == std::vector<ChunkRun>{{100 + more, chunks[1].pages, 0}});
    CHECK(reader.chunk_of(599) == 0);
    CHECK(reader.chunk_of(199) == summary.hot_chunks - 1);
    CHECK(reader.chunk_of(1) == summary.hot_chunks);
    CHECK_FALSE(reader.chunk_of(0));
    CHECK_FALSE(reader.chunk_of(600));
    CHECK_FALSE(reader.chunk_of(~0u));
    for (std::uint32_t frame = 1; frame < frames; ++frame)
        CHECK(reader.chunk_of(frame).has_value());
}

TEST_CASE("a chunk fills its frames and no others") {
    const test::TempFolder folder;
    constexpr std::uint32_t frames = 500;
    const Bytes memory = test::make_memory(frames, 9);
    write_snapshot(folder / "a", test::sample_state(frames), memory, some_frames(frames, 90, 5));
    const auto reader = SnapshotReader::open(folder / "a");
    for (std::size_t i = 0; i < reader.chunks().size(); ++i) {
        Bytes image(memory.size(), std::byte{0x5a});
        const Bytes untouched(4096, std::byte{0x5a});
        reader.load_chunk(i, image);
        bool right = true;
        for (std::uint32_t frame = 0; frame < frames; ++frame) {
            const std::byte* expected =
                reader.chunk_of(frame) == i ? &memory[std::size_t{frame} * 4096] : untouched.data();
            right = right && std::memcmp(&image[std::size_t{frame} * 4096], expected, 4096) == 0;
        }
        CHECK(right);
    }
    Bytes small(4096);
    CHECK_THROWS_AS(reader.load_chunk(0, small), std::logic_error);
}

TEST_CASE("threads load chunks at the same time") {
    const test::TempFolder folder;
    constexpr std::uint32_t frames = 1200;
    const Bytes memory = test::make_memory(frames, 11);
    write_snapshot(folder / "a", test::sample_state(frames), memory, some_frames(frames, 200, 6), 1);
    const auto reader = SnapshotReader::open(folder / "a");
    Bytes image(memory.size());
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            for (std::size_t i = t; i < reader.chunks().size(); i += 4)
                reader.load_chunk(i, image);
        });
    for (auto& thread : threads)
        thread.join();
    CHECK(image == memory);
}

TEST_CASE("holes of a memfd are skipped without filling them") {
    const test::TempFolder folder;
    constexpr std::uint32_t frames = 1200;
    const tinykvm::UniqueFd memfd(::memfd_create("image", MFD_CLOEXEC));
    REQUIRE(::ftruncate(memfd.get(), std::int64_t{frames} * 4096) == 0);
    const auto mapping =
        tinykvm::Mapping::map(std::size_t{frames} * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memfd.get(), 0, "image");
    for (const std::uint32_t frame : {3u, 4u, 600u, frames - 1})
        std::memset(mapping.data() + std::size_t{frame} * 4096, 7 + static_cast<int>(frame % 200), 4096);
    auto state = test::sample_state(frames);
    state.page_table_root = 3 * 4096; // page tables are read, and no holes
    struct stat before {
    }, after{};
    ::fstat(memfd.get(), &before);
    const auto summary = write_snapshot(folder / "a", state, mapping.bytes(), {}, 0, memfd.get());
    ::fstat(memfd.get(), &after);
    CHECK(summary.stored_pages == 4);
    CHECK(after.st_blocks == before.st_blocks);
    CHECK(load_all(SnapshotReader::open(folder / "a")) == Bytes(mapping.data(), mapping.data() + mapping.size()));
}

TEST_CASE("memory of nothing but zeros") {
    const test::TempFolder folder;
    const Bytes memory(10 * 4096);
    const auto summary = write_snapshot(folder / "a", test::sample_state(10), memory, std::vector<std::uint32_t>{1, 2});
    CHECK(summary.chunks == 0);
    CHECK(summary.zero_pages == 10);
    const auto reader = SnapshotReader::open(folder / "a");
    reader.verify();
    CHECK(load_all(reader) == memory);
    CHECK(reader.file_bytes() < 2000);
}
