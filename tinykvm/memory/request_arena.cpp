#include "tinykvm/memory/request_arena.hpp"

#include <sys/mman.h>
#include <sys/resource.h>

#include "tinykvm/base/error.hpp"
#include "tinykvm/memory/image.hpp"

namespace tinykvm {
namespace {

// Page faults of this thread. Those that populating causes count as well. Unlike the files of /proc, it can be had in
// every jail and on every kernel.
long faults() {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt;
}

} // namespace

std::string_view text_of(ArenaPages pages) {
    switch (pages) {
    case ArenaPages::ordinary: return "ordinary pages";
    case ArenaPages::transparent: return "transparent huge pages";
    case ArenaPages::reserved: return "reserved huge pages";
    }
    return "";
}

ArenaPages map_arena(std::byte* at, const RequestArena& arena) {
    constexpr int kProt = PROT_READ | PROT_WRITE, kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    // Without MAP_NORESERVE: this call fails, and not a later access, when there are too few. Populated by a second
    // call, since mmap does not tell whether MAP_POPULATE succeeded (a cgroup may limit huge pages, too).
    if (arena.takes_reserved && ::mmap(at, arena.bytes, kProt, kFlags | MAP_HUGETLB, -1, 0) != MAP_FAILED &&
        ::madvise(at, arena.bytes, kMadvPopulateWrite) == 0)
        return ArenaPages::reserved;
    if (::mmap(at, arena.bytes, kProt, kFlags | MAP_NORESERVE, -1, 0) == MAP_FAILED)
        throw_errno("mmap the request arena");
    (void)!::madvise(at, arena.bytes, MADV_HUGEPAGE); // fails where the kernel has none
    const long before = faults();
    if (::madvise(at, arena.bytes, kMadvPopulateWrite) < 0)
        throw_errno("populate the request arena");
    // One fault for each huge page. A single one that is missing costs kHugePageFrames of them.
    const auto most = static_cast<long>(arena.bytes / kHugePageBytes + kHugePageFrames - 1);
    return faults() - before < most ? ArenaPages::transparent : ArenaPages::ordinary;
}

} // namespace tinykvm
