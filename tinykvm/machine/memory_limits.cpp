#include "tinykvm/machine/memory_limits.hpp"

#include <asm/unistd_64.h>
#include <sys/mman.h>

#include <algorithm>

#include "tinykvm/abi/layout.hpp"
#include "tinykvm/base/guest_addr.hpp"

namespace tinykvm {
namespace {

// Whether a region counts as data: private writable memory (Linux mm/mmap.c, is_data_mapping), but not the stack.
bool is_data(const Region& region) {
    return (region.prot & PROT_WRITE) && !(region.flags & kRegionShared) && region.name != "[stack]";
}

struct Sizes {
    std::uint64_t all = 0, data = 0;
};

Sizes sizes_in(const AddressSpace::Regions& regions, std::uint64_t begin, std::uint64_t end) {
    Sizes sizes;
    for (const auto& [at, region] : regions) {
        if (!(region.flags & kRegionUser) || region.end <= begin || at >= end)
            continue;
        const std::uint64_t bytes = std::min(region.end, end) - std::max(at, begin);
        sizes.all += bytes;
        sizes.data += is_data(region) ? bytes : 0;
    }
    return sizes;
}

std::uint64_t whole_pages(std::uint64_t bytes) {
    return bytes + kPageSize - 1 < bytes ? ~std::uint64_t{0} : page_up(bytes);
}

} // namespace

bool exceeds_own_limits(const AddressSpace& space, const abi::HostCall& call, std::uint64_t address_space,
                        std::uint64_t data) {
    if (address_space == 0 && data == 0)
        return false;
    const auto& a = call.arg;
    Sizes added, removed;
    switch (call.nr) {
    case __NR_mmap:
        added.all = whole_pages(a[1]);
        added.data = (a[2] & PROT_WRITE) && (a[3] & 0xf) == MAP_PRIVATE ? added.all : 0;
        if ((a[3] & MAP_FIXED) && a[0] + added.all >= a[0])
            removed = sizes_in(space.regions(), a[0], a[0] + added.all);
        break;
    case __NR_mremap:
        added.all = a[2] > a[1] ? whole_pages(a[2] - a[1]) : 0;
        added.data = sizes_in(space.regions(), a[0], a[0] + 1).data != 0 ? added.all : 0;
        break;
    case __NR_brk: added.all = added.data = a[0] > space.brk_end() ? whole_pages(a[0] - space.brk_end()) : 0; break;
    default: return false;
    }
    if (added.all == 0 || added.all > layout::kUserMax)
        return false; // no growth, or so much that the call itself refuses it
    const Sizes now = sizes_in(space.regions(), 0, layout::kUserMax);
    const auto exceeds = [](std::uint64_t limit, std::uint64_t used, std::uint64_t more, std::uint64_t less) {
        return limit != 0 && more != 0 && used - less + more > limit;
    };
    return exceeds(address_space, now.all, added.all, removed.all) || exceeds(data, now.data, added.data, removed.data);
}

} // namespace tinykvm
