// Saved states of suspended machines.
#include "src/snapshot/state_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <map>

#include "tests/catch.hpp"
#include "tests/unit/snapshot/files.hpp"
#include "tests/unit/snapshot/sample_state.hpp"
#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/base/unique_fd.hpp"

using namespace kvmserver;
using namespace kvmserver::test;
using tinykvm::kPageSize;

namespace {

constexpr std::uint32_t kStateFrames = 600;
const std::vector<std::uint32_t> kChanged = [] {
    std::vector<std::uint32_t> frames{0, 1, 7};
    for (std::uint32_t frame = 100; frame < 500; ++frame)
        frames.push_back(frame);
    frames.push_back(kStateFrames - 1);
    return frames;
}();

struct Written {
    TempFolder folder;
    Bytes memory = make_memory(kStateFrames);
    Digest base = sha256("base");
    std::filesystem::path path = folder / "state";
    tinykvm::UniqueFd open(int flags = O_RDONLY) const {
        return tinykvm::UniqueFd(::open(path.c_str(), flags | O_CLOEXEC, 0600));
    }
    std::uint64_t size = write_state(open(O_RDWR | O_CREAT | O_EXCL).get(), {}, base, sample_state(kStateFrames),
                                     memory, kChanged, "write")
                             .bytes;
    // Reads all of it.
    Outcome read(const Digest& of) const {
        return outcome_of([&] {
            const auto file = open();
            StateFile(file.get(), UINT64_MAX, of, "the state")
                .read_pages([](std::uint32_t, std::span<const std::byte>) {});
        });
    }
};

} // namespace

TEST_CASE("a saved state is read as it was written") {
    const Written written;
    CHECK(written.size == std::filesystem::file_size(written.path));
    const auto file = written.open();
    const StateFile state(file.get(), UINT64_MAX, written.base, "the state");
    CHECK(encode_metadata({{}, state.machine()}) == encode_metadata({{}, sample_state(kStateFrames)}));
    CHECK(std::vector(state.frames().begin(), state.frames().end()) == kChanged);
    std::vector<std::uint32_t> seen;
    state.read_pages([&](std::uint32_t first, std::span<const std::byte> pages) {
        for (std::size_t i = 0; i < pages.size() / kPageSize; ++i)
            seen.push_back(static_cast<std::uint32_t>(first + i));
        REQUIRE(std::ranges::equal(pages, std::span(written.memory).subspan(first * kPageSize, pages.size())));
    });
    CHECK(seen == kChanged);
}

TEST_CASE("a saved state that is damaged, cut off or of another snapshot is refused in one line") {
    const Written written;
    const auto refused = [&](const Outcome& outcome) {
        CHECK(outcome.code == tinykvm::ExitCode::bad_snapshot);
        CHECK(outcome.message.starts_with("the state: "));
        CHECK(outcome.message.find('\n') == std::string::npos);
    };
    CHECK(written.read(written.base).message.empty());
    refused(written.read(sha256("another")));
    const Bytes whole = read_file(written.path);
    for (std::size_t size = 0; size < whole.size(); size += size < 5000 ? 37 : 100'003) {
        INFO(size);
        write_file(written.path, std::span(whole).first(size));
        refused(written.read(written.base));
    }
    for (std::size_t at = 0; at < whole.size(); at += at < 5000 ? 11 : 50'021) {
        INFO(at);
        Bytes changed = whole;
        changed[at] ^= std::byte{0x10};
        write_file(written.path, changed);
        refused(written.read(written.base));
    }
}

TEST_CASE("a write that did not end is no saved state") {
    Written written;
    Bytes bytes = read_file(written.path);
    std::fill_n(bytes.begin(), 120, std::byte{0}); // its header comes last
    write_file(written.path, bytes);
    CHECK(written.read(written.base).code == tinykvm::ExitCode::bad_snapshot);
}

namespace {

// A state in three parts, each of which has some frames of the one before, and some of its own.
struct InParts : Written {
    struct Change {
        std::uint32_t first, end, all; // frames that it changes; of all memory
    };
    static constexpr Change kParts[] = {{0, 400, 600}, {50, 60, 600}, {300, 650, 700}};
    Bytes now = make_memory(kParts[2].all);
    std::vector<Bytes> whole; // the file after each part
    InParts() {
        std::filesystem::remove(path);
        const auto file = open(O_RDWR | O_CREAT);
        WrittenState written;
        for (std::size_t part = 0; part < std::size(kParts); ++part) {
            const auto& [first, end, all] = kParts[part];
            std::vector<std::uint32_t> frames;
            for (std::uint32_t frame = first; frame < end; ++frame) {
                frames.push_back(frame);
                std::fill_n(now.begin() + std::size_t{frame} * kPageSize, kPageSize, std::byte(frame * 7 + part));
            }
            written = write_state(file.get(), written, base, sample_state(all), now, frames, "write");
            CHECK(written.parts == part + 1);
            CHECK(written.bytes == std::filesystem::file_size(path));
            whole.push_back(read_file(path));
        }
    }
};

} // namespace

TEST_CASE("of a state in parts the last that has a frame counts") {
    const InParts written;
    const auto file = written.open();
    const StateFile state(file.get(), UINT64_MAX, written.base, "the state");
    CHECK(state.machine().frames == 700);
    CHECK(state.frames().size() == 650);
    std::vector<unsigned> seen(700);
    state.read_pages([&](std::uint32_t first, std::span<const std::byte> pages) {
        for (std::size_t i = 0; i < pages.size() / kPageSize; ++i)
            ++seen[first + i];
        REQUIRE(std::ranges::equal(pages, std::span(written.now).subspan(first * kPageSize, pages.size())));
    });
    CHECK(std::ranges::count(seen, 1u) == 650);
    CHECK(std::ranges::count(seen, 0u) == 50);
}

TEST_CASE("a state whose last part is damaged, cut off, or follows another one is refused") {
    const InParts written;
    const Bytes& whole = written.whole.back();
    const std::size_t last = written.whole[1].size();
    for (std::size_t size = last + 1; size < whole.size(); size += size < last + 5000 ? 37 : 100'003) {
        INFO(size);
        write_file(written.path, std::span(whole).first(size));
        CHECK(written.read(written.base).code == tinykvm::ExitCode::bad_snapshot);
    }
    for (std::size_t at = 0; at < whole.size(); at += at % 4096 < 300 ? 11 : 50'021) {
        INFO(at);
        Bytes changed = whole;
        changed[at] ^= std::byte{0x10};
        write_file(written.path, changed);
        CHECK(written.read(written.base).code == tinykvm::ExitCode::bad_snapshot);
    }
    Bytes without = written.whole[0]; // the second part
    without.insert(without.end(), whole.begin() + static_cast<std::ptrdiff_t>(last), whole.end());
    write_file(written.path, without);
    CHECK(written.read(written.base).code == tinykvm::ExitCode::bad_snapshot);
    write_file(written.path, written.whole[1]);
    CHECK(written.read(written.base).message.empty());
}

TEST_CASE("a state is read part by part while it grows") {
    const InParts written;
    write_file(written.path, std::span(written.whole[2]).first(written.whole[1].size() + 5000));
    const auto file = written.open();
    std::size_t pages = 0;
    const auto read = [&](std::size_t size, std::size_t part) {
        const StateFile state(file.get(), size, written.base, "the state");
        CHECK(state.parts() == part + 1);
        pages = 0;
        state.read_pages([&](std::uint32_t, std::span<const std::byte> run) { pages += run.size() / kPageSize; }, part);
    };
    read(written.whole[0].size(), 0);
    CHECK(pages == 400);
    read(written.whole[1].size(), 1); // behind it there is some of the third one
    CHECK(pages == 10);
    write_file(written.path, written.whole[2]);
    read(written.whole[2].size(), 2);
    CHECK(pages == 350);
}
