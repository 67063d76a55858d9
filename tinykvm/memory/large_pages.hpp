// Pages of 2 MiB that are in the host's memory as such: one fault and one entry of a TLB where 512 ordinary pages have
// one each.
//
// They hold what a program may read or execute but not write, a file each, and every machine of an image uses the same
// ones, in place of the image's frames. Those are still there, with the same bytes: where a machine changes a page, or
// a right, its page tables go back to them first (PageTables). Nothing but a vCPU reads a large page.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/base/mapping.hpp"

namespace tinykvm {

class LargePages {
public:
    static constexpr std::uint64_t kBytes = 2 << 20;
    // Where they lie in guest-physical memory: behind all that a machine may have (GuestRam::clone). CPUs whose
    // physical addresses have fewer bits cannot use them.
    static constexpr GuestPhys kAt{1ull << 38};
    static constexpr unsigned kPhysicalBits = 39;
    static constexpr std::size_t kMax = 512;

    // Room for `most` pages, at most kMax. Throws HostError.
    explicit LargePages(std::size_t most);

    // Adds the first 2 MiB of the file, which never change. False when the host does not have them as one page, or when
    // there is no room; throws HostError.
    bool add(int file);
    // The same without asking how the host has them.
    bool add_any(int file);

    std::size_t count() const { return count_; }
    std::byte* data() const { return begin_; }
    static GuestPhys address(std::size_t page) { return kAt + page * kBytes; }

    // The page-table entry that a large page stands in for, a link to a table. Of the page added last.
    void stand_in_for(std::uint64_t link) { links_.push_back(link); }
    // That of an entry which maps a large page; nothing when it is no such entry.
    std::optional<std::uint64_t> link(std::uint64_t entry) const;

private:
    Mapping room_;
    std::byte* begin_ = nullptr; // in room_, aligned
    std::size_t most_, count_ = 0;
    std::vector<std::uint64_t> links_;
};

} // namespace tinykvm
