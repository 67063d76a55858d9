#include "src/store/snapshots/checked_chunks.hpp"

#include <chrono>
#include <fstream>
#include <sys/stat.h>

#include "src/store/snapshots/chunk_files.hpp"
#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"

using namespace kvmserver;
using namespace kvmserver::store;
using namespace kvmserver::store::test;
using namespace std::chrono_literals;

namespace {

// Until a write would change the stamps of all files that are there.
void settle(const fs::path& path) {
    struct stat status {};
    do
        REQUIRE(::stat(path.c_str(), &status) == 0);
    while (!FileStamp::of(status).settled());
}

} // namespace

TEST_CASE("a chunk that was read is known for an hour, as long as its file stays as it is") {
    CheckedChunks checked;
    const Digest chunk = sha256("chunk"), other = sha256("other");
    const FileStamp file{.device = 1, .inode = 2, .bytes = 3, .seconds = 4, .nanoseconds = 5};
    const auto now = CheckedChunks::Clock::now();
    CHECK_FALSE(checked.knows(chunk, file, now));
    checked.note(chunk, file, now);
    CHECK(checked.knows(chunk, file, now + 59min));
    CHECK_FALSE(checked.knows(chunk, file, now + 61min));
    CHECK_FALSE(checked.knows(other, file, now));
    FileStamp later = file;
    ++later.nanoseconds;
    CHECK_FALSE(checked.knows(chunk, later, now));
}

TEST_CASE("a snapshot that was checked is read again where one of its files was written") {
    TempFolder folder;
    Store store(folder / "store");
    const std::vector<Bytes> pieces = sample_pieces(1);
    const SnapshotHold hold = import(store, pieces);
    const StoredSnapshot snapshot(store, hold.digest());
    CheckedChunks checked;
    const auto files = files_below(folder / "store/chunks");
    settle(files.back());
    for (int i = 0; i < 2; ++i)
        CHECK_NOTHROW(snapshot.check(checked));
    for (const fs::path& file : files) {
        const std::string text = read_text(file);
        std::string altered = text;
        altered.back() = static_cast<char>(altered.back() ^ 1);
        write_text(file, altered);
        CHECK_THROWS_AS(snapshot.check(checked), tinykvm::UserError);
        write_text(file, text);
        CHECK_NOTHROW(snapshot.check(checked));
    }
}
