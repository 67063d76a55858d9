#include "tinykvm/memory/dirty_pages.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace tinykvm {
namespace {

// From linux/fs.h since 6.7. Debian 12's headers are older.
struct PageRegion {
    std::uint64_t start, end, categories;
};
struct ScanArgument {
    std::uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, category_inverted, category_mask,
        category_anyof_mask, return_mask;
};
constexpr unsigned long kPagemapScan = _IOWR('f', 16, ScanArgument);
constexpr std::uint64_t kIsFile = 1 << 2, kIsPresent = 1 << 3, kIsSwapped = 1 << 4, kIsHuge = 1 << 6;

int pagemap_fd() {
    static const UniqueFd fd(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
    if (!fd)
        throw_errno("open /proc/self/pagemap");
    return fd.get();
}

bool scan(const std::byte* base, Frame frames, std::vector<Frame>& out) {
    std::array<PageRegion, 512> found;
    const auto begin = reinterpret_cast<std::uint64_t>(base);
    std::uint64_t at = begin;
    const std::uint64_t end = begin + std::uint64_t{frames} * kPageSize;
    while (at < end) {
        ScanArgument argument{};
        argument.size = sizeof(argument);
        argument.start = at;
        argument.end = end;
        argument.vec = reinterpret_cast<std::uint64_t>(found.data());
        argument.vec_len = found.size();
        argument.category_inverted = kIsFile;
        argument.category_mask = kIsFile;
        argument.category_anyof_mask = kIsPresent | kIsSwapped;
        argument.return_mask = kIsPresent;
        const int n = ::ioctl(pagemap_fd(), kPagemapScan, &argument);
        if (n < 0)
            return false;
        for (int i = 0; i < n; ++i)
            for (std::uint64_t page = found[i].start; page < found[i].end; page += kPageSize)
                out.push_back(static_cast<Frame>((page - begin) / kPageSize));
        if (argument.walk_end <= at)
            return false;
        at = argument.walk_end;
    }
    return true;
}

// Documentation/admin-guide/mm/pagemap.rst: bit 63 present, 62 swapped, 61 file page or shared anonymous.
void read_pagemap(const std::byte* base, Frame frames, std::vector<Frame>& out) {
    std::array<std::uint64_t, 1024> entries;
    const std::uint64_t first = reinterpret_cast<std::uint64_t>(base) / kPageSize;
    for (Frame at = 0; at < frames;) {
        const std::size_t want = std::min<std::size_t>(entries.size(), frames - at);
        const ssize_t n = ::pread(pagemap_fd(), entries.data(), want * 8, static_cast<off_t>((first + at) * 8));
        if (n <= 0)
            throw_errno("read /proc/self/pagemap");
        for (std::size_t i = 0; i < static_cast<std::size_t>(n) / 8; ++i)
            if ((entries[i] >> 62) != 0 && !(entries[i] >> 61 & 1))
                out.push_back(at + static_cast<Frame>(i));
        at += static_cast<Frame>(n / 8);
    }
}

} // namespace

bool is_one_page(const std::byte* at, std::uint64_t bytes) {
    PageRegion found;
    ScanArgument argument{};
    argument.size = sizeof(argument);
    argument.start = reinterpret_cast<std::uint64_t>(at);
    argument.end = argument.start + bytes;
    argument.vec = reinterpret_cast<std::uint64_t>(&found);
    argument.vec_len = 1;
    argument.category_mask = argument.return_mask = kIsHuge | kIsPresent;
    return ::ioctl(pagemap_fd(), kPagemapScan, &argument) == 1 && found.start == argument.start &&
           found.end == argument.end;
}

bool can_scan_pages() {
    static const bool can = [] {
        std::vector<Frame> none;
        alignas(kPageSize) static std::byte page[kPageSize];
        return scan(page, 1, none);
    }();
    return can;
}

std::vector<Frame> private_pages(const std::byte* base, Frame frames) {
    std::vector<Frame> out;
    if (can_scan_pages() && scan(base, frames, out))
        return out;
    out.clear();
    read_pagemap(base, frames, out);
    return out;
}

} // namespace tinykvm
