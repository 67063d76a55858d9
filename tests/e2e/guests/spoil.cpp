// Writes a snapshot anew with something in it that no machine has: spoil IN OUT WHAT
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "src/snapshot/reader.hpp"
#include "src/snapshot/writer.hpp"
#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/abi/layout.hpp"
#include "tinykvm/memory/page_tables.hpp"

using namespace kvmserver;
using namespace tinykvm;

namespace {

struct Spoiled {
    MachineState state;
    std::vector<std::byte> memory;

    std::uint64_t& leaf(std::uint64_t at) {
        std::uint64_t table = state.page_table_root;
        for (int shift = 39;; shift -= 9) {
            auto& entry = *reinterpret_cast<std::uint64_t*>(memory.data() + table + ((at >> shift) & 511) * 8);
            if (shift == 12)
                return entry;
            table = entry & pte::kAddress;
        }
    }
    std::byte* page(std::uint64_t at) { return memory.data() + (leaf(at) & pte::kAddress); }
    std::uint64_t writable() { // an address of the program's
        for (const RegionState& region : state.regions)
            if (region.name == "[stack]")
                return region.end - kPageSize;
        return 0;
    }
};

bool spoil(Spoiled& s, const std::string& what) {
    abi::KernelHeader kernel;
    std::memcpy(&kernel, s.page(layout::kKernelImage), sizeof(kernel));
    if (what == "nothing")
        return true;
    if (what == "code") // its own at CPL 0, and all gates into the program
        std::memset(s.page(kernel.supervisor_begin), 0xf4, kPageSize);
    else if (what == "tables")
        std::memset(s.page(layout::kCpuTables), 0xff, kPageSize);
    else if (what == "rights")
        s.leaf(layout::kCpuTables) |= pte::kUser;
    else if (what == "alias")
        s.leaf(s.writable()) = (s.leaf(s.writable()) & ~pte::kAddress) | (s.leaf(layout::kCpuTables) & pte::kAddress);
    else if (what == "supervisor")
        s.leaf(s.writable()) &= ~pte::kUser;
    else if (what == "beyond")
        s.leaf(s.writable()) = (std::uint64_t{s.state.frames} * kPageSize) | 0x67;
    else if (what == "door")
        reinterpret_cast<abi::KernelHeader*>(s.page(layout::kKernelImage))->entry_rip = layout::kCpuTables;
    else if (what == "region")
        for (RegionState& region : s.state.regions)
            region.flags = region.begin == layout::kCpuTables ? 1 : region.flags;
    else
        return false;
    return true;
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 4)
        return 2;
    const SnapshotReader reader = SnapshotReader::open(argv[1]);
    Spoiled s{reader.state(), {}};
    s.memory.resize(std::size_t{s.state.frames} * kPageSize);
    for (std::size_t chunk = 0; chunk < reader.chunks().size(); ++chunk)
        reader.load_chunk(chunk, s.memory);
    if (!spoil(s, argv[3]))
        return 2;
    write_snapshot(argv[2], s.state, s.memory, {}, 1);
}
