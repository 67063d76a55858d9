#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "src/snapshot/folder_cache.hpp"
#include "src/snapshot/reader.hpp"
#include "src/snapshot/writer.hpp"
#include "tests/catch.hpp"
#include "tests/unit/snapshot/files.hpp"
#include "tests/unit/snapshot/sample_state.hpp"
#include "tinykvm/base/text.hpp"

using namespace kvmserver;
namespace fs = std::filesystem;
using tinykvm::UniqueFd;

namespace {

constexpr std::uint64_t kPages = 5 * 4096;

test::Bytes pages_of(unsigned seed) { return test::make_memory(kPages / 4096, seed); }
CopyName name_of(const test::Bytes& pages) { return {sha256(pages), pages.size()}; }
CopyName name_of(unsigned seed) { return name_of(pages_of(seed)); }

bool holds(const UniqueFd& copy, const test::Bytes& pages) {
    test::Bytes read(pages.size());
    return copy && ::pread(copy.get(), read.data(), read.size(), 0) == static_cast<ssize_t>(read.size()) &&
           read == pages;
}

fs::path file_of(const fs::path& cache, const CopyName& name) { return cache / (name.sha256.hex() + ".pages"); }

ino_t inode_of(const UniqueFd& copy) {
    struct stat info {};
    REQUIRE(::fstat(copy.get(), &info) == 0);
    return info.st_ino;
}

// As if it had been used last then.
void used_before(const fs::path& file, std::time_t seconds) {
    const timespec times[2] = {{std::time(nullptr) - seconds, 0}, {0, UTIME_OMIT}};
    REQUIRE(::utimensat(AT_FDCWD, file.c_str(), times, 0) == 0);
}

// Writes to the file where it is, as dd(1) would, and leaves it the time of the change that it had.
void overwrite_unseen(const fs::path& file, const test::Bytes& bytes) {
    struct stat info {};
    REQUIRE(::stat(file.c_str(), &info) == 0);
    const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
    REQUIRE(::pwrite(fd.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    const timespec times[2] = {info.st_atim, info.st_mtim};
    REQUIRE(::futimens(fd.get(), times) == 0);
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

TEST_CASE("a copy holds the pages that it is called by, for reading only") {
    const test::TempFolder folder;
    const FolderCache cache(folder / "cache");
    CHECK_FALSE(cache.find(name_of(1)));
    CHECK(holds(cache.keep(name_of(1), pages_of(1)), pages_of(1)));
    cache.offer(name_of(2), pages_of(2));
    const CopyName names[] = {name_of(2), name_of(3), name_of(1)};
    const auto found = cache.find_all(names);
    REQUIRE(found.size() == 3);
    CHECK(holds(found[0], pages_of(2)));
    CHECK_FALSE(found[1]);
    CHECK(holds(found[2], pages_of(1)));
    CHECK((::fcntl(found[0].get(), F_GETFL) & O_ACCMODE) == O_RDONLY);
    CHECK_FALSE(cache.find({name_of(1).sha256, kPages - 4096}));
    struct stat info {};
    REQUIRE(::fstat(found[0].get(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0600);
}

TEST_CASE("pages are kept by their own name only") {
    const test::TempFolder folder;
    const FolderCache cache(folder / "cache");
    CHECK_FALSE(cache.keep(name_of(2), pages_of(1)));
    CHECK_FALSE(cache.keep({name_of(1).sha256, kPages + 4096}, pages_of(1)));
    const test::Bytes odd(1000), large(PageCache::kMaxCopyBytes + 4096);
    CHECK_FALSE(cache.keep(name_of(odd), odd));
    CHECK_FALSE(cache.keep(name_of(large), large));
    CHECK_FALSE(cache.keep(name_of(test::Bytes{}), {}));
    CHECK(fs::is_empty(folder / "cache"));
}

TEST_CASE("who makes a copy that is there already gets that one") {
    const test::TempFolder folder;
    const auto first = FolderCache(folder / "cache").keep(name_of(1), pages_of(1));
    const auto second = FolderCache(folder / "cache").keep(name_of(1), pages_of(1));
    CHECK(inode_of(first) == inode_of(second)); // both map the same memory
}

TEST_CASE("what a tenant has another one has not") {
    const test::TempFolder folder;
    const FolderCache cache(folder / "cache");
    const FolderCache one = cache.of_tenant("one"), two = cache.of_tenant("two"), nobody = cache.of_tenant("");
    REQUIRE(one.keep(name_of(1), pages_of(1)));
    CHECK(one.find(name_of(1)));
    CHECK_FALSE(two.find(name_of(1)));
    CHECK_FALSE(cache.find(name_of(1)));
    REQUIRE(cache.keep(name_of(1), pages_of(1)));
    CHECK(inode_of(nobody.find(name_of(1))) == inode_of(cache.find(name_of(1))));
    CHECK(inode_of(one.find(name_of(1))) != inode_of(cache.find(name_of(1))));
}

TEST_CASE("a copy that was altered while the host was off is not taken") {
    const test::TempFolder folder;
    const FolderCache cache(folder / "cache");
    cache.keep(name_of(1), pages_of(1));
    const fs::path path = file_of(folder / "cache", name_of(1));
    test::Bytes older = test::read_file(path); // as it would be if the host had been started since
    std::fill_n(older.begin() + kPages, 36, std::byte{'x'});
    overwrite_unseen(path, older);
    CHECK(holds(cache.find(name_of(1)), pages_of(1)));
    CHECK(test::read_file(path) != older); // it need not be looked at again
    for (const std::size_t at : {std::size_t{0}, std::size_t{kPages - 1}}) {
        test::Bytes altered = older;
        altered[at] ^= std::byte{4};
        overwrite_unseen(path, altered);
        CHECK_FALSE(cache.find(name_of(1)));
    }
    CHECK(holds(cache.keep(name_of(1), pages_of(1)), pages_of(1))); // made anew
    CHECK(holds(cache.find(name_of(1)), pages_of(1)));
    fs::resize_file(path, kPages / 2);
    CHECK_FALSE(cache.find(name_of(1)));
    fs::resize_file(path, 0);
    CHECK_FALSE(cache.find(name_of(1)));
}

TEST_CASE("a copy that somebody writes to is not taken, and made anew") {
    const test::TempFolder folder;
    const FolderCache cache(folder / "cache");
    cache.keep(name_of(1), pages_of(1));
    const fs::path path = file_of(folder / "cache", name_of(1));
    {
        const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
        REQUIRE(::pwrite(file.get(), "x", 1, 4097) == 1);
    }
    CHECK_FALSE(cache.find(name_of(1)));
    CHECK(holds(cache.keep(name_of(1), pages_of(1)), pages_of(1)));
    CHECK(holds(cache.find(name_of(1)), pages_of(1)));
    fs::last_write_time(path, fs::file_time_type::clock::now()); // touched only
    CHECK(holds(cache.find(name_of(1)), pages_of(1)));
}

TEST_CASE("chunks are called by their pages, whatever the snapshot and wherever its bytes are") {
    const test::TempFolder folder;
    make_snapshot(folder / "app.snap", 1);
    make_snapshot(folder / "other.snap", 2);
    fs::create_directory(folder / "a");
    const auto file = SnapshotReader::open(folder / "app.snap"), other = SnapshotReader::open(folder / "other.snap");
    const auto pieces = open_in_pieces(folder / "app.snap", folder / "a");
    REQUIRE(file.chunks().size() > 2);
    for (std::size_t i = 0; i < file.chunks().size(); ++i) {
        const auto name = file.copy_name(i);
        REQUIRE(name);
        CHECK(FolderCache::is_of(*name, file.unpack(i)));
        CHECK(pieces.copy_name(i)->sha256 == name->sha256);
    }
    CHECK(file.copy_name(1)->sha256 != other.copy_name(1)->sha256);
}

TEST_CASE("a folder that others could write to or read is not used") {
    const test::TempFolder folder;
    const FolderCache cache(folder / "cache");
    REQUIRE(cache.keep(name_of(1), pages_of(1)));
    fs::permissions(folder / "cache", fs::perms(0755));
    CHECK_FALSE(cache.usable());
    CHECK_FALSE(cache.find(name_of(1)));
    CHECK_FALSE(cache.keep(name_of(2), pages_of(2)));
    fs::create_directory_symlink("cache", folder / "link");
    fs::permissions(folder / "cache", fs::perms(0700));
    CHECK_FALSE(FolderCache(folder / "link").usable());
    CHECK(cache.find(name_of(1)));
    fs::permissions(file_of(folder / "cache", name_of(1)), fs::perms(0644));
    CHECK_FALSE(cache.find(name_of(1)));
    CHECK_FALSE(FolderCache("").usable());
    CHECK_FALSE(FolderCache("").keep(name_of(1), pages_of(1)));
    CHECK_FALSE(FolderCache(folder / "no" / "such" / "folder").keep(name_of(1), pages_of(1)));
}

TEST_CASE("the longest unused copies make room") {
    const test::TempFolder folder;
    FolderCache(folder / "cache").keep(name_of(1), pages_of(1));
    const auto one = fs::file_size(file_of(folder / "cache", name_of(1)));
    const FolderCache cache(folder / "cache", 2 * one);
    cache.keep(name_of(2), pages_of(2));
    for (const auto& entry : fs::directory_iterator(folder / "cache")) // both long ago; then the first is used
        used_before(entry, 3600);
    REQUIRE(cache.find(name_of(1)));
    const auto still_open = cache.find(name_of(2));
    used_before(file_of(folder / "cache", name_of(2)), 3600);
    cache.keep(name_of(3), pages_of(3));
    test::write_file(folder / "cache" / "old.unpacked", pages_of(4));
    test::write_file(folder / "cache" / "old.kept", pages_of(4));
    cache.make_room();
    CHECK(cache.find(name_of(1)));
    CHECK_FALSE(cache.find(name_of(2)));
    CHECK(cache.find(name_of(3)));
    CHECK(holds(still_open, pages_of(2))); // who has it open keeps it
    CHECK_FALSE(fs::exists(folder / "cache" / "old.unpacked"));
    CHECK_FALSE(fs::exists(folder / "cache" / "old.kept"));
}
