// A snapshot file on its way into the store.
#include "src/ops/import.hpp"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "src/snapshot/writer.hpp"
#include "tests/catch.hpp"
#include "tests/unit/snapshot/files.hpp"
#include "tests/unit/snapshot/sample_state.hpp"
#include "tests/unit/store/samples.hpp"

using namespace kvmserver;
using kvmserver::test::outcome_of;
using kvmserver::test::read_file;
using kvmserver::test::write_file;
using store::test::Bytes;
using tinykvm::ExitCode;

namespace {

constexpr std::uint32_t kFrames = 400;

void write_sample(const std::filesystem::path& file, const Bytes& memory) {
    write_snapshot(file, kvmserver::test::sample_state(kFrames), memory, {});
}

class ImportWorld {
public:
    ImportWorld() { write_sample(file, memory); }
    store::test::TempFolder folder;
    store::Store store{folder / "store"};
    std::filesystem::path file = folder / "a.snap";
    Bytes memory = kvmserver::test::make_memory(kFrames);
};

// Counts what an import costs the disk.
class CountedFiles : public store::test::FaultyFiles {
public:
    std::atomic<std::uint64_t> written = 0;
    std::atomic<int> fsyncs = 0, links = 0;

    ssize_t write(int fd, std::span<const std::byte> bytes, std::uint64_t offset) override {
        written += bytes.size();
        return FaultyFiles::write(fd, bytes, offset);
    }
    int fsync(int fd) override {
        ++fsyncs;
        return FaultyFiles::fsync(fd);
    }
    int link(int at, const char* from, const char* to) override {
        ++links;
        return FaultyFiles::link(at, from, to);
    }
};

} // namespace

TEST_CASE("the pieces of a snapshot make up the file, in order and without a gap") {
    const ImportWorld world;
    const ops::CutFile cut(world.file);
    const auto& pieces = cut.pieces();
    REQUIRE(pieces.size() > 3);
    std::uint64_t at = 0;
    for (const ops::FilePiece& piece : pieces) {
        CHECK(piece.offset == at);
        CHECK(piece.length > 0);
        at += piece.length;
    }
    CHECK(at == std::filesystem::file_size(world.file));
}

TEST_CASE("an imported snapshot is in the store as it was in its file") {
    ImportWorld world;
    const ops::Imported imported = ops::import_snapshot(world.store, world.file);
    CHECK(store::test::exported(world.store, imported.hold.digest()) == read_file(world.file));
    CHECK(imported.bytes == std::filesystem::file_size(world.file));
    CHECK(imported.new_bytes == imported.bytes);
}

TEST_CASE("an import adds only what the store does not have") {
    ImportWorld world;
    const ops::Imported first = ops::import_snapshot(world.store, world.file);
    const ops::Imported again = ops::import_snapshot(world.store, world.file);
    CHECK(again.hold.digest() == first.hold.digest());
    CHECK(again.new_bytes == 0);
    world.memory.back() ^= std::byte{1};
    write_sample(world.file, world.memory);
    const ops::Imported changed = ops::import_snapshot(world.store, world.file);
    CHECK(changed.hold.digest() != first.hold.digest());
    CHECK(changed.new_bytes > 0);
    CHECK(changed.new_bytes < changed.bytes);
}

TEST_CASE("a file that was made just now is stored as any other, and its progress is told") {
    ImportWorld world;
    const ops::DigestedFile file(world.file, ops::DigestedFile::Origin::made_now);
    std::vector<std::uint64_t> told;
    const auto tell = [&](std::uint64_t done, std::uint64_t all) {
        CHECK(all == file.bytes());
        told.push_back(done);
    };
    const ops::Imported first = ops::import_snapshot(world.store, file, tell);
    CHECK(first.hold.digest() == file.digest());
    CHECK(store::test::exported(world.store, first.hold.digest()) == read_file(world.file));
    CHECK(told.size() > 3);
    CHECK(std::ranges::is_sorted(told));
    CHECK(told.back() == file.bytes());
    const ops::Imported again = ops::import_snapshot(world.store, file); // it was there after all
    CHECK(again.hold.digest() == first.hold.digest());
    CHECK(again.new_bytes == 0);
}

TEST_CASE("a damaged snapshot is refused, whatever byte it is, and leaves nothing in the store") {
    const auto origin = GENERATE(ops::DigestedFile::Origin::unknown, ops::DigestedFile::Origin::made_now);
    ImportWorld world;
    const Bytes sound = read_file(world.file);
    const store::test::TempFolder& folder = world.folder;
    store::SnapshotHold::take(world.store, Digest{}); // makes the file of a lock, which stays
    const std::size_t before = store::test::files_below(folder / "store").size();
    for (std::size_t at = 0; at < sound.size(); at += sound.size() / 23) {
        CAPTURE(at);
        Bytes damaged = sound;
        damaged[at] ^= std::byte{0x10};
        write_file(world.file, damaged);
        const auto outcome = outcome_of([&] { ops::import_snapshot(world.store, {world.file, origin}); });
        CHECK(outcome.code == ExitCode::bad_snapshot);
        CHECK(outcome.message.find(world.file.string()) != outcome.message.npos);
    }
    CHECK(store::test::files_below(folder / "store").size() == before);
}

TEST_CASE("importing a file again that the store has costs the disk nothing") {
    const ImportWorld world;
    const auto files = std::make_shared<CountedFiles>();
    store::Store store(world.folder / "counted", {.files = files});
    const ops::Imported first = ops::import_snapshot(store, world.file);
    REQUIRE(files->written > first.bytes);
    files->written = 0;
    files->fsyncs = 0;
    const ops::Imported again = ops::import_snapshot(store, world.file);
    CHECK(again.hold.digest() == first.hold.digest());
    CHECK(again.bytes == first.bytes);
    CHECK(files->written == 0);
    CHECK(files->fsyncs == 0);
    CHECK(files->links == 0);
}

TEST_CASE("a damaged snapshot is refused although the store has the sound one") {
    ImportWorld world;
    const ops::Imported sound = ops::import_snapshot(world.store, world.file);
    const Bytes bytes = read_file(world.file);
    for (std::size_t at = 0; at < bytes.size(); at += bytes.size() / 23) {
        CAPTURE(at);
        Bytes damaged = bytes;
        damaged[at] ^= std::byte{0x10};
        write_file(world.file, damaged);
        CHECK(outcome_of([&] { ops::import_snapshot(world.store, world.file); }).code == ExitCode::bad_snapshot);
    }
    CHECK(store::test::exported(world.store, sound.hold.digest()) == bytes);
}

TEST_CASE("importing a file again mends what was altered or lost in the store") {
    ImportWorld world;
    const ops::Imported imported = ops::import_snapshot(world.store, world.file);
    const Bytes bytes = read_file(world.file);
    const bool lost = GENERATE(false, true);
    for (const auto& chunk : store::test::files_below(world.folder / "store/chunks")) {
        CAPTURE(chunk);
        if (lost) {
            std::filesystem::remove(chunk);
        } else {
            Bytes altered = read_file(chunk);
            altered.back() ^= std::byte{1};
            write_file(chunk, altered);
        }
        CHECK(ops::import_snapshot(world.store, world.file).hold.digest() == imported.hold.digest());
        REQUIRE(store::test::exported(world.store, imported.hold.digest()) == bytes);
    }
}

TEST_CASE("what is no snapshot, or only its beginning, is refused") {
    ImportWorld world;
    Bytes half = read_file(world.file);
    half.resize(half.size() / 2);
    for (const Bytes& bad : {half, Bytes{}, kvmserver::test::to_bytes("#!/bin/sh\n")}) {
        write_file(world.file, bad);
        CHECK(outcome_of([&] { ops::CutFile cut(world.file); }).code == ExitCode::bad_snapshot);
    }
}

TEST_CASE("a file that has shrunk since it was examined is refused by its name") {
    ImportWorld world;
    std::vector<std::uint64_t> lengths;
    const ops::CutFile cut(world.file);
    for (const ops::FilePiece& piece : cut.pieces())
        lengths.push_back(piece.length);
    std::filesystem::resize_file(world.file, std::filesystem::file_size(world.file) - 1);
    const tinykvm::UniqueFd fd(::open(world.file.c_str(), O_RDONLY | O_CLOEXEC));
    const auto outcome = outcome_of([&] { ops::import_pieces(world.store, fd.get(), lengths, "a.snap"); });
    CHECK(outcome.code == ExitCode::bad_snapshot);
    CHECK(outcome.message.find("a.snap") != outcome.message.npos);
}
