// Pages of 2 MiB that are huge pages of the host, too: they cost one fault and one TLB entry where 512 ordinary pages
// cost one each.
//
// Each is backed by a file of its own and holds memory that a program may read or execute but not write. All machines
// of an image use the same large pages instead of the image's frames. The frames still exist, with the same bytes:
// before a machine changes a page or its rights, its page tables go back to them (PageTables). Only vCPUs read large
// pages.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/base/mapping.hpp"

namespace tinykvm {

// The large pages of one image.
class LargePages {
public:
    static constexpr std::uint64_t kBytes = 2 << 20;
    // Their place in guest-physical memory, after everything that a machine may have (GuestRam::clone). A CPU needs
    // physical addresses of kPhysicalBits bits to use them.
    static constexpr GuestPhys kAt{1ull << 38};
    static constexpr unsigned kPhysicalBits = 39;
    static constexpr std::size_t kMax = 512;

    // Room for `max_count` pages, at most kMax. Throws HostError.
    explicit LargePages(std::size_t max_count);

    // Adds the first 2 MiB of the file, which must never change. False when the host does not back them with one huge
    // page, or when there is no room. Throws HostError.
    bool add(int file);
    // The same, whatever pages the host backs them with.
    bool add_any(int file);

    std::size_t count() const { return count_; }
    std::byte* data() const { return begin_; }
    static GuestPhys address(std::size_t page) { return kAt + page * kBytes; }

    // Sets the page-table entry (a link to a table) that a large page stands in for. Call this for each page, in the
    // order in which they were added.
    void stand_in_for(std::uint64_t link) { links_.push_back(link); }
    void stand_in_for_none() { links_.clear(); }
    // The link that the large page mapped by `entry` stands in for; nullopt when `entry` maps none.
    std::optional<std::uint64_t> link(std::uint64_t entry) const;

private:
    Mapping room_;
    std::byte* begin_ = nullptr; // in room_, aligned to kBytes
    std::size_t max_count_, count_ = 0;
    std::vector<std::uint64_t> links_;
};

} // namespace tinykvm
