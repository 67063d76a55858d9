// libFuzzer: what lies in the cache folder is anything. What is taken from it is what was kept, or it is not
// taken.
//
// Input: how the file is made, then its bytes.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "src/snapshot/compressed_chunk_cache.hpp"
#include "src/snapshot/folder_cache.hpp"
#include "tests/fuzz/support.hpp"
#include "tests/fuzz/temp_folder.hpp"
#include "tinykvm/base/text.hpp"

using namespace kvmserver;
using fuzz::Input;

namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;

const fs::path& folder() {
    static const struct Place {
        fuzz::TempFolder folder{"cache_files"};
        fs::path path;
        Place() {
            fuzz::wall_off();
            folder.mount_memory();
            path = fs::path(folder.path()) / "cache";
        }
    } place;
    return place.path;
}

std::array<char, 36> this_boot() {
    std::array<char, 36> id{};
    std::ifstream("/proc/sys/kernel/random/boot_id").read(id.data(), id.size());
    return id;
}

Bytes taken(Input& in, std::size_t most) {
    const auto bytes = std::as_bytes(in.bytes(most));
    return {bytes.begin(), bytes.end()};
}

void append(Bytes& to, const void* from, std::size_t bytes) {
    const auto* at = static_cast<const std::byte*>(from);
    to.insert(to.end(), at, at + bytes);
}

void append_all(Bytes& to, const Bytes& from) { to.insert(to.end(), from.begin(), from.end()); }

// Whole pages, of a few bytes that repeat.
Bytes pages_of(Input& in) {
    const Bytes given = taken(in, 64);
    Bytes pages(4096 * (1 + in.byte() % 2));
    for (std::size_t i = 0; i < pages.size() && !given.empty(); ++i)
        pages[i] = given[i % given.size()];
    return pages;
}

// What a copy's file ends with (folder_cache.cpp): in which run of the host it was looked at, and when it was written.
Bytes trailer(Input& in) {
    static const std::array<char, 36> boot = this_boot();
    std::array<char, 40> run{};
    const unsigned how = in.byte();
    if (how % 4)
        std::copy(boot.begin(), boot.end(), run.begin());
    if (how % 4 == 2)
        run[how / 4 % run.size()] ^= 1;
    const std::int64_t seconds = how % 8 ? std::time(nullptr) : in.take<std::int64_t>();
    Bytes bytes;
    append(bytes, run.data(), run.size());
    append(bytes, &seconds, sizeof seconds);
    return bytes;
}

// A copy that is handed out is what its name says.
void check_copy(const tinykvm::UniqueFd& file, const CopyName& name) {
    if (!file)
        return;
    FUZZ_REQUIRE(PageCache::is_size(name.bytes));
    Bytes bytes(name.bytes);
    FUZZ_REQUIRE(::pread(file.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    FUZZ_REQUIRE(sha256(bytes) == name.sha256);
}

void check_unpacked(const FolderCache& cache, Input& in) {
    const Bytes pages = pages_of(in), other = pages_of(in);
    CopyName name{sha256(pages), pages.size()};
    const fs::path path = folder() / (name.sha256.hex() + ".pages");
    if (in.byte() % 8 == 0)
        name.bytes = in.take<std::uint64_t>();

    Bytes file = pages;
    for (unsigned n = in.byte() % 4; n > 0; --n)
        file[in.take<std::uint16_t>() % file.size()] ^= static_cast<std::byte>(in.byte());
    if (in.byte() % 8)
        append_all(file, trailer(in));
    if (in.byte() % 8 == 0)
        file.resize(file.size() - std::min<std::size_t>(file.size(), in.take<std::uint16_t>()));
    if (in.byte() % 16 == 0)
        fs::create_symlink("/etc/passwd", path);
    else
        std::ofstream(path, std::ios::binary)
            .write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
    if (in.byte() % 16)
        fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);

    check_copy(cache.find(name), name);
    check_copy(cache.find(name), name); // looked at before
    check_copy(cache.keep(name, in.byte() % 2 ? pages : other), name);
    cache.make_room();
    fs::remove(path);
}

// What is found is what was kept, whatever is in the file.
void check_pressed(const FolderCache& cache, Input& in) {
    const Effort effort{.level = 19, .total_raw = PageCache::kWorthBytes};
    const CompressedChunkCache pressed(cache, effort);
    const Bytes raw = pages_of(in);
    const Digest name = sha256(raw);
    const ChunkCompressor::Result honest = ChunkCompressor(Effort{.level = 1}).compress(raw, false);
    pressed.keep(name, false, honest);
    const fs::path path = fs::directory_iterator(folder())->path();
    const auto kept = cache.read(path.stem()).value();
    Bytes file(kept.begin(), kept.end());
    if (in.byte() % 4 == 0)
        file = taken(in, 300);
    for (unsigned n = in.byte() % 4; n > 0 && !file.empty(); --n)
        file[in.take<std::uint16_t>() % file.size()] ^= static_cast<std::byte>(in.byte());
    cache.write(path.stem(), file);
    if (const auto found = pressed.find(name, false))
        FUZZ_REQUIRE(found->filter == honest.filter && found->stored == honest.stored);
    fs::remove(path);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const FolderCache cache(folder(), 1 << 20);
    FUZZ_REQUIRE(cache.usable());
    Input in(data, size);
    if (in.byte() % 2)
        check_unpacked(cache, in);
    else
        check_pressed(cache, in);
    return 0;
}
