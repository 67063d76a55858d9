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
    std::uint64_t size =
        write_state(open(O_RDWR | O_CREAT | O_EXCL).get(), base, sample_state(kStateFrames), memory, kChanged, "write");
    // Reads all of it.
    Outcome read(const Digest& of) const {
        return outcome_of([&] {
            const auto file = open();
            StateFile(file.get(), of, "the state").read_pages([](std::uint32_t, std::span<const std::byte>) {});
        });
    }
};

} // namespace

TEST_CASE("a saved state is read as it was written") {
    const Written written;
    CHECK(written.size == std::filesystem::file_size(written.path));
    const auto file = written.open();
    const StateFile state(file.get(), written.base, "the state");
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
    std::fill_n(bytes.begin(), 104, std::byte{0}); // its header comes last
    write_file(written.path, bytes);
    CHECK(written.read(written.base).code == tinykvm::ExitCode::bad_snapshot);
}
