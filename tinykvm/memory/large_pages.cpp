#include "tinykvm/memory/large_pages.hpp"

#include <sys/mman.h>

#include <algorithm>

#include "tinykvm/base/error.hpp"
#include "tinykvm/memory/dirty_pages.hpp"
#include "tinykvm/memory/image.hpp"
#include "tinykvm/memory/page_tables.hpp"

namespace tinykvm {

LargePages::LargePages(std::size_t max_count)
    : room_(Mapping::map((std::min(max_count, kMax) + 1) * kBytes, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0, "large pages")),
      max_count_(std::min(max_count, kMax)) {
    // Align as in guest-physical memory: KVM uses large mappings only if both are aligned alike.
    const auto address = reinterpret_cast<std::uintptr_t>(room_.data());
    begin_ = room_.data() + (kBytes - address % kBytes) % kBytes;
}

bool LargePages::add_any(int file) {
    if (count_ == max_count_)
        return false;
    std::byte* page = begin_ + count_ * kBytes;
    if (::mmap(page, kBytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) == MAP_FAILED)
        throw_errno("mmap a large page");
    ++count_;
    return true;
}

bool LargePages::add(int file) {
    if (!add_any(file))
        return false;
    std::byte* page = begin_ + (count_ - 1) * kBytes;
    // If the file is not in the page cache yet, it is read as one huge page.
    (void)!::madvise(page, kBytes, MADV_HUGEPAGE);
    if (::madvise(page, kBytes, kMadvPopulateRead) == 0 && is_one_page(page, kBytes))
        return true;
    --count_; // the next page is mapped over it
    return false;
}

std::optional<std::uint64_t> LargePages::link(std::uint64_t entry) const {
    const std::uint64_t page = ((entry & pte::kAddress) - kAt.value) / kBytes;
    return (entry & pte::kLarge) && page < links_.size() ? std::optional(links_[page]) : std::nullopt;
}

} // namespace tinykvm
