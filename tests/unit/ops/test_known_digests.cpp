#include "src/ops/known_digests.hpp"

#include <filesystem>
#include <sys/stat.h>

#include "tests/catch.hpp"
#include "tests/unit/snapshot/files.hpp"
#include "tests/unit/store/samples.hpp"

using namespace kvmserver;
using kvmserver::test::to_bytes;
using kvmserver::test::write_file;

namespace {

FileStamp stamp_of(const std::filesystem::path& path) {
    struct stat status {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    return FileStamp::of(status);
}

} // namespace

TEST_CASE("the digest of a file is known until the file changes in any way") {
    store::test::TempFolder folder;
    const FolderCache cache(folder / "cache");
    const Digest digest = sha256("what it was");
    FileStamp file{.device = 7, .inode = 8, .bytes = 9, .seconds = 10, .nanoseconds = 11};
    CHECK_FALSE(ops::known_digest(cache, file));
    ops::note_digest(cache, file, digest);
    CHECK(ops::known_digest(cache, file) == digest);
    for (auto* const number : {&file.device, &file.inode, &file.bytes}) {
        ++*number;
        CHECK_FALSE(ops::known_digest(cache, file));
        --*number;
    }
    for (auto* const number : {&file.seconds, &file.nanoseconds}) {
        --*number;
        CHECK_FALSE(ops::known_digest(cache, file));
        ++*number;
    }
    const Digest newer = sha256("what it is");
    ++file.seconds;
    ops::note_digest(cache, file, newer);
    CHECK(ops::known_digest(cache, file) == newer);
}

TEST_CASE("the digest of a file that was written just now is not kept: another write might leave its time as it is") {
    store::test::TempFolder folder;
    const FolderCache cache(folder / "cache");
    write_file(folder / "file", to_bytes("new"));
    const FileStamp file = stamp_of(folder / "file");
    CHECK_FALSE(file.settled());
    ops::note_digest(cache, file, sha256("new"));
    CHECK_FALSE(ops::known_digest(cache, file));
}

TEST_CASE("an entry of the cache that is cut or altered is not believed to be a digest") {
    store::test::TempFolder folder;
    const FolderCache cache(folder / "cache");
    const FileStamp file{.device = 1, .inode = 2, .bytes = 3, .seconds = 4, .nanoseconds = 5};
    const Digest digest = sha256("a");
    ops::note_digest(cache, file, digest);
    const auto entries = store::test::files_below(folder / "cache");
    REQUIRE(entries.size() == 1);
    const std::string whole = store::test::read_text(entries.front());
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
        store::test::write_text(entries.front(), whole.substr(0, bytes));
        REQUIRE_FALSE(ops::known_digest(cache, file));
    }
    for (const std::string& text : {whole + "0", whole + "\n", " " + whole, whole.substr(0, whole.size() - 1) + "G"}) {
        store::test::write_text(entries.front(), text);
        CHECK_FALSE(ops::known_digest(cache, file));
    }
    store::test::write_text(entries.front(), whole);
    CHECK(ops::known_digest(cache, file) == digest);
}
