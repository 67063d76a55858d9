#include <fcntl.h>
#include <fmt/format.h>
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

constexpr std::uint64_t kPages = 5 * 4096;

test::Bytes pages_of(unsigned seed) { return test::make_memory(kPages / 4096, seed); }

bool holds(const std::optional<UnpackedChunk>& copy, const test::Bytes& pages) {
    test::Bytes read(pages.size());
    return copy &&
           ::pread(copy->file.get(), read.data(), read.size(), 0) == static_cast<ssize_t>(read.size()) &&
           read == pages;
}

void make_snapshot(const fs::path& path, unsigned seed) {
    std::vector<std::uint32_t> hot(1000);
    std::iota(hot.begin(), hot.end(), 0u);
    write_snapshot(path, test::sample_state(3000), test::make_memory(3000, seed), hot, 1);
}

// The snapshot as a list of pieces: each chunk, and what is around them. Their files need no names any more.
SnapshotReader open_in_pieces(const fs::path& snapshot, const fs::path& folder) {
    const auto whole = test::read_file(snapshot);
    const auto reader = SnapshotReader::open(snapshot);
    std::string list;
    std::vector<tinykvm::UniqueFd> files;
    const auto piece = [&](std::uint64_t begin, std::uint64_t end, const std::string& name) {
        test::write_file(folder / name, std::span(whole).subspan(begin, end - begin));
        list += fmt::format("{} {}\n", end - begin, name);
        REQUIRE(files.emplace_back(::open((folder / name).c_str(), O_RDONLY | O_CLOEXEC)));
        fs::remove(folder / name);
    };
    std::uint64_t at = reader.chunks().front().offset;
    piece(0, at, "head");
    for (std::size_t i = 0; i < reader.chunks().size(); ++i) {
        const ChunkInfo& chunk = reader.chunks()[i];
        piece(at, at + chunk.stored, fmt::format("{}of-this-content", i));
        at += chunk.stored;
    }
    piece(at, whole.size(), "tail");
    test::write_file(folder / "list", std::as_bytes(std::span(list)));
    const tinykvm::UniqueFd fd(::open((folder / "list").c_str(), O_RDONLY | O_CLOEXEC));
    return SnapshotReader::open(open_pieces_source(fd.get(), std::move(files)), "pieces");
}

} // namespace

TEST_CASE("a copy holds the pages of its chunk") {
    const test::TempFolder folder;
    const UnpackedCache cache(folder / "cache");
    CHECK_FALSE(cache.find("one", kPages));
    CHECK(holds(cache.keep("one", pages_of(1)), pages_of(1)));
    CHECK(holds(cache.keep("two", pages_of(2)), pages_of(2)));
    CHECK(holds(cache.find("one", kPages), pages_of(1)));
    CHECK(cache.find("one", kPages));
    CHECK_FALSE(cache.find("three", kPages));
    CHECK_FALSE(cache.find("three", kPages));
    CHECK_FALSE(cache.find("one", kPages - 4096));
    struct stat info {};
    REQUIRE(::fstat(cache.find("one", kPages)->file.get(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0600);
}

TEST_CASE("who makes a copy that is there already gets that one") {
    const test::TempFolder folder;
    const auto inode = [](const std::optional<UnpackedChunk>& copy) {
        struct stat info {};
        REQUIRE(::fstat(copy->file.get(), &info) == 0);
        return info.st_ino;
    };
    const auto first = UnpackedCache(folder / "cache").keep("one", pages_of(1));
    const auto second = UnpackedCache(folder / "cache").keep("one", pages_of(1));
    CHECK(inode(first) == inode(second)); // both map the same memory
}

TEST_CASE("a copy that was altered while the machine was off is not taken") {
    const test::TempFolder folder;
    const UnpackedCache cache(folder / "cache");
    cache.keep("one", pages_of(1));
    const fs::path path = folder / "cache" / "one.kept";
    const test::Bytes whole = test::read_file(path);
    test::Bytes older = whole; // as it would be if the machine had been started since
    std::fill_n(older.end() - 36, 36, std::byte{'x'});
    test::write_file(path, older);
    CHECK(holds(cache.find("one", kPages), pages_of(1)));
    CHECK(test::read_file(path) == whole); // it need not be checked again
    for (const std::size_t at : {std::size_t{0}, std::size_t{kPages - 1}, std::size_t{kPages}}) {
        test::Bytes altered = older;
        altered[at] ^= std::byte{4};
        test::write_file(path, altered);
        CHECK_FALSE(cache.find("one", kPages));
    }
    CHECK(holds(cache.keep("one", pages_of(1)), pages_of(1))); // made anew
    CHECK(holds(cache.find("one", kPages), pages_of(1)));
    test::write_file(path, std::span(whole).first(kPages / 2));
    CHECK_FALSE(cache.find("one", kPages));
    test::write_file(path, {});
    CHECK_FALSE(cache.find("one", kPages));
}

TEST_CASE("the name of a copy is of one file in one state") {
    const test::TempFolder folder;
    make_snapshot(folder / "app.snap", 1);
    make_snapshot(folder / "other.snap", 1);
    const auto reader = SnapshotReader::open(folder / "app.snap");
    const std::string name = reader.chunk_name(0);
    CHECK(name == SnapshotReader::open(folder / "app.snap").chunk_name(0));
    CHECK(name != reader.chunk_name(1));
    CHECK(name != SnapshotReader::open(folder / "other.snap").chunk_name(0));
    fs::rename(folder / "other.snap", folder / "app.snap");
    CHECK(name != SnapshotReader::open(folder / "app.snap").chunk_name(0));
}

TEST_CASE("chunks that are pieces of a store are called by what they hold, whatever the snapshot") {
    const test::TempFolder folder;
    make_snapshot(folder / "app.snap", 1);
    fs::create_directory(folder / "a");
    fs::create_directory(folder / "b");
    const auto a = open_in_pieces(folder / "app.snap", folder / "a"),
               b = open_in_pieces(folder / "app.snap", folder / "b");
    REQUIRE(a.chunks().size() > 2);
    CHECK(a.chunk_name(1) == b.chunk_name(1));
    CHECK(a.chunk_name(1) != a.chunk_name(2));
    CHECK(a.chunk_name(1).starts_with("1of-this-content-"));
    // The same bytes, read with another filter or as fewer pages, are other pages.
    CHECK(a.chunk_name(1) ==
          fmt::format("1of-this-content-{}-{}", static_cast<int>(a.chunks()[1].filter), a.chunks()[1].pages));
}

TEST_CASE("a folder that others could write to or read is not used") {
    const test::TempFolder folder;
    const UnpackedCache cache(folder / "cache");
    REQUIRE(cache.keep("one", pages_of(1)));
    fs::permissions(folder / "cache", fs::perms(0755));
    CHECK_FALSE(cache.usable());
    CHECK_FALSE(cache.find("one", kPages));
    CHECK_FALSE(cache.keep("two", pages_of(1)));
    fs::create_directory_symlink("cache", folder / "link");
    fs::permissions(folder / "cache", fs::perms(0700));
    CHECK_FALSE(UnpackedCache(folder / "link").usable());
    CHECK(cache.find("one", kPages));
    fs::permissions(folder / "cache" / "one.kept", fs::perms(0644));
    CHECK_FALSE(cache.find("one", kPages));
    CHECK_FALSE(UnpackedCache("").usable());
    CHECK_FALSE(UnpackedCache("").keep("one", pages_of(1)));
    CHECK_FALSE(UnpackedCache(folder / "no" / "such" / "folder").keep("one", pages_of(1)));
}

TEST_CASE("the longest unused copies make room") {
    const test::TempFolder folder;
    UnpackedCache(folder / "cache").keep("a", pages_of(1));
    const auto one = fs::file_size(folder / "cache" / "a.kept");
    const UnpackedCache cache(folder / "cache", 2 * one);
    cache.keep("b", pages_of(2));
    for (const auto& entry :
         fs::directory_iterator(folder / "cache")) // both long ago; then the first is used
        fs::last_write_time(entry, fs::file_time_type::clock::now() - std::chrono::hours(1));
    REQUIRE(cache.find("a", kPages));
    const auto still_open = cache.find("b", kPages);
    fs::last_write_time(folder / "cache" / "b.kept",
                        fs::file_time_type::clock::now() - std::chrono::hours(1));
    cache.keep("c", pages_of(3));
    test::write_file(folder / "cache" / "old.unpacked", pages_of(4));
    cache.make_room();
    CHECK(cache.find("a", kPages));
    CHECK_FALSE(cache.find("b", kPages));
    CHECK(cache.find("c", kPages));
    CHECK(holds(still_open, pages_of(2))); // who has it open keeps it
    CHECK_FALSE(fs::exists(folder / "cache" / "old.unpacked"));
}
