// What happens to a file on its way: cut off, extended, bits flipped, replaced while it is open.
#include <fcntl.h>
#include <unistd.h>

#include <random>

#include "src/snapshot/reader.hpp"
#include "src/snapshot/writer.hpp"
#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/unit/snapshot/files.hpp"
#include "tests/unit/snapshot/matchers.hpp"
#include "tests/unit/snapshot/sample_state.hpp"
#include "tinykvm/base/unique_fd.hpp"

using namespace kvmserver;
using test::Bytes;
using test::Contains;
using test::EndsWith;
using tinykvm::ExitCode;

namespace {

// A file whose bits are flipped in place.
class Flipper {
public:
    explicit Flipper(const std::filesystem::path& path)
        : path_(path), bytes_(test::read_file(path)), fd_(::open(path.c_str(), O_WRONLY)) {}
    std::size_t bits() const { return bytes_.size() * 8; }
    test::Outcome with_flipped(std::size_t bit) {
        const auto at = static_cast<off_t>(bit / 8);
        const std::byte flipped = bytes_[bit / 8] ^ static_cast<std::byte>(1u << bit % 8);
        REQUIRE(::pwrite(fd_.get(), &flipped, 1, at) == 1);
        const auto outcome = test::check_file(path_);
        REQUIRE(::pwrite(fd_.get(), &bytes_[bit / 8], 1, at) == 1);
        return outcome;
    }

private:
    std::filesystem::path path_;
    Bytes bytes_;
    tinykvm::UniqueFd fd_;
};

// One line, with the file's name first.
void check_refusal(const test::Outcome& outcome, const std::filesystem::path& path) {
    if (outcome.code != ExitCode::bad_snapshot || outcome.message.find('\n') != std::string::npos ||
        !outcome.message.starts_with(path.string() + ": "))
        FAIL("accepted or badly refused: " << outcome.message);
}

} // namespace

TEST_CASE("each bit of a small file matters") {
    const test::TempFolder folder;
    const auto path = folder / "small.snap";
    tinykvm::MachineState state;
    state.frames = 4;
    Bytes memory(4 * 4096);
    memory[4096] = std::byte{1};
    memory[2 * 4096 + 9] = std::byte{2};
    write_snapshot(path, state, memory, std::vector<std::uint32_t>{2});
    REQUIRE(test::check_file(path).code == ExitCode::ok);
    Flipper flipper(path);
    for (std::size_t bit = 0; bit < flipper.bits(); ++bit)
        check_refusal(flipper.with_flipped(bit), path);
    CHECK(test::check_file(path).code == ExitCode::ok);
}

TEST_CASE("random bits of a larger file") {
    const test::TempFolder folder;
    const auto path = folder / "app.snap";
    write_snapshot(path, test::sample_state(300), test::make_memory(300), std::vector<std::uint32_t>{1, 2, 3, 50}, 1);
    Flipper flipper(path);
    std::mt19937 random(7);
    for (int i = 0; i < kvmserver::test::amount(3000); ++i)
        check_refusal(flipper.with_flipped(random() % flipper.bits()), path);
}

TEST_CASE("what is altered is named") {
    const test::TempFolder folder;
    const auto path = folder / "app.snap";
    write_snapshot(path, test::sample_state(1000), test::make_memory(1000), {});
    const Bytes good = test::read_file(path);
    const auto header = format::decode_header(good, good.size());
    const auto message_at = [&](std::uint64_t offset) {
        Bytes bad = good;
        bad[offset] ^= std::byte{0x10};
        test::write_file(path, bad);
        return test::check_file(path).message;
    };
    CHECK_THAT(message_at(3), EndsWith(": not a snapshot"));
    CHECK_THAT(message_at(8), EndsWith(": altered: the header does not match its checksum"));
    CHECK_THAT(message_at(40), EndsWith(": altered: the header does not match its checksum"));
    CHECK_THAT(message_at(127), EndsWith(": altered: the header does not match its checksum"));
    CHECK_THAT(message_at(128), EndsWith(": altered: chunk 0 of guest memory does not match its checksum"));
    CHECK_THAT(message_at(header.metadata_at()), EndsWith(": altered: the metadata does not match its checksum"));
    CHECK_THAT(message_at(header.index_at()), EndsWith(": altered: the index does not match its checksum"));
    // The part that is damaged does not matter to those that are not.
    Bytes bad = good;
    bad[header.metadata_at() - 1] ^= std::byte{1};
    test::write_file(path, bad);
    const auto reader = SnapshotReader::open(path);
    Bytes image(1000 * 4096);
    reader.load_chunk(0, image);
    CHECK_THROWS_AS(reader.load_chunk(reader.chunks().size() - 1, image), tinykvm::UserError);
}

TEST_CASE("a truncated file says how much is missing") {
    const test::TempFolder folder;
    const auto path = folder / "app.snap";
    write_snapshot(path, test::sample_state(100), test::make_memory(100), {});
    const Bytes good = test::read_file(path);
    const auto header = format::decode_header(good, good.size());
    std::vector<std::size_t> sizes{0,
                                   1,
                                   7,
                                   8,
                                   9,
                                   12,
                                   16,
                                   24,
                                   31,
                                   32,
                                   33,
                                   64,
                                   127,
                                   128,
                                   129,
                                   header.metadata_at(),
                                   header.index_at(),
                                   good.size() - 1};
    std::mt19937 random(8);
    for (int i = 0; i < 100; ++i)
        sizes.push_back(random() % good.size());
    for (const std::size_t size : sizes) {
        CAPTURE(size);
        test::write_file(path, std::span(good).first(size));
        const auto outcome = test::check_file(path);
        CHECK(outcome.code == ExitCode::bad_snapshot);
        if (size == 0)
            CHECK_THAT(outcome.message, EndsWith("not a snapshot: the file is empty"));
        else if (size < 32)
            CHECK_THAT(outcome.message, Contains("truncated: only the first " + std::to_string(size)));
        else
            CHECK_THAT(outcome.message, EndsWith("truncated: " + std::to_string(good.size() - size) + " of " +
                                                 std::to_string(good.size()) + " bytes are missing"));
    }
    Bytes longer = good;
    longer.resize(good.size() + 3);
    test::write_file(path, longer);
    CHECK_THAT(test::check_file(path).message, EndsWith("altered: 3 bytes too many at its end"));
}

TEST_CASE("a file that is cut off while it is open") {
    const test::TempFolder folder;
    const auto path = folder / "app.snap";
    write_snapshot(path, test::sample_state(100), test::make_memory(100), {});
    const auto reader = SnapshotReader::open(path);
    REQUIRE(::truncate(path.c_str(), 200) == 0);
    CHECK_THAT(test::outcome_of([&] { reader.verify(); }).message, Contains("truncated while it was in use"));
}

TEST_CASE("files that are no snapshots") {
    const test::TempFolder folder;
    const auto path = folder / "file";
    for (const char* text : {"#!/bin/sh\n",
                             "\x7f"
                             "ELF",
                             "x", "\x89PNG\r\n\x1a\n and more than thirty-two bytes"}) {
        test::write_file(path, test::to_bytes(text));
        const auto outcome = test::check_file(path);
        CHECK(outcome.code == ExitCode::bad_snapshot);
        CHECK_THAT(outcome.message, EndsWith("file: not a snapshot"));
    }
    CHECK_THAT(test::check_file(folder.path()).message, EndsWith("not a snapshot: it is a folder"));
    CHECK_THAT(test::check_file("/dev/null").message, EndsWith("not a snapshot: it is not a regular file"));
    const auto absent = test::check_file(folder / "absent");
    CHECK(absent.code == ExitCode::not_found);
    CHECK_THAT(absent.message, EndsWith("absent: No such file or directory"));
    REQUIRE(::mkfifo((folder / "fifo").c_str(), 0600) == 0);
    CHECK(test::check_file(folder / "fifo").code == ExitCode::bad_snapshot);
    CHECK_THAT(test::check_file(folder / "a\x1b[31m\nb").message, Contains("a\\x1b[31m\\x0ab"));
}

TEST_CASE("a file that may not be read") {
    const test::TempFolder folder;
    const auto path = folder / "app.snap";
    test::write_file(path, test::to_bytes("x"));
    REQUIRE(::chmod(path.c_str(), 0) == 0);
    const bool root = ::geteuid() == 0;
    if (root)
        REQUIRE(::seteuid(65534) == 0);
    ::chmod(folder.path().c_str(), 0755);
    const auto outcome = test::check_file(path);
    if (root)
        REQUIRE(::seteuid(0) == 0);
    // The folder is root's and closed to others, or the file is closed to its owner.
    CHECK(outcome.code == ExitCode::not_permitted);
    CHECK_THAT(outcome.message, EndsWith(": Permission denied"));
}
