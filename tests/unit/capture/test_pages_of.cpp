// Single pages of a snapshot, of which large ones are made.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>

#include "src/capture/large_pages.hpp"
#include "src/snapshot/writer.hpp"
#include "tests/catch.hpp"
#include "tests/unit/snapshot/files.hpp"
#include "tests/unit/snapshot/sample_state.hpp"

using namespace kvmserver;
using kvmserver::test::Bytes;

TEST_CASE("each page of a snapshot is had as it was, in any order, however many chunks that takes") {
    constexpr std::uint32_t kFrames = 9000; // more chunks than are kept unpacked
    constexpr std::size_t kPage = 4096;
    const kvmserver::test::TempFolder folder;
    const Bytes memory = kvmserver::test::make_memory(kFrames);
    write_snapshot(folder / "a.snap", kvmserver::test::sample_state(kFrames), memory, {});
    const SnapshotReader reader = SnapshotReader::open(folder / "a.snap");
    REQUIRE(reader.chunks().size() > 16);
    const PageOfFrame pages = pages_of(reader);
    std::mt19937 random(1);
    for (int i = 0; i < 400; ++i) {
        const auto frame = static_cast<std::uint32_t>(random() % kFrames);
        CAPTURE(frame);
        const std::span<const std::byte> page = pages(frame);
        REQUIRE(page.size() == kPage);
        CHECK(std::ranges::equal(page, std::span(memory).subspan(std::size_t{frame} * kPage, kPage)));
    }
}

TEST_CASE("a page of a damaged chunk is refused, not handed out") {
    constexpr std::uint32_t kFrames = 300;
    const kvmserver::test::TempFolder folder;
    write_snapshot(folder / "a.snap", kvmserver::test::sample_state(kFrames), kvmserver::test::make_memory(kFrames),
                   {});
    Bytes bytes = kvmserver::test::read_file(folder / "a.snap");
    const auto chunk = SnapshotReader::open(folder / "a.snap").chunks().front();
    bytes[chunk.offset + chunk.stored / 2] ^= std::byte{1};
    kvmserver::test::write_file(folder / "a.snap", bytes);
    const SnapshotReader reader = SnapshotReader::open(folder / "a.snap");
    const PageOfFrame pages = pages_of(reader);
    const auto outcome = kvmserver::test::outcome_of([&] { pages(chunk.runs.front().first); });
    CHECK(outcome.code == tinykvm::ExitCode::bad_snapshot);
}
