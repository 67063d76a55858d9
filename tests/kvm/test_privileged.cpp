// What runs at CPL 0 is this build's own, whatever a snapshot's file says: code, descriptor tables, and who
// reaches them.
#include <sys/mman.h>

#include "tests/kvm/tampered.hpp"
#include "tinykvm/abi/layout.hpp"
#include "tinykvm/guest/embed.hpp"
#include "tinykvm/kvm/cpu_tables.hpp"
#include "tinykvm/machine/privileged.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

namespace {

struct Privileged : Snapshot {
    abi::KernelHeader kernel{};
    std::uint64_t code = 0, user = 0; // the page at CPL 0; one of the program's that it may write to

    Privileged() {
        const auto m = memory();
        std::memcpy(&kernel, page(*m, layout::kKernelImage), sizeof(kernel));
        code = kernel.supervisor_begin;
        for (const RegionState& region : state.regions)
            if (region.begin < layout::kUserMax && (region.prot & PROT_WRITE) && mapped(*m, region.begin))
                user = region.begin;
        REQUIRE(user != 0);
    }
    bool mapped(Image& m, std::uint64_t at) const {
        std::uint64_t table = state.page_table_root;
        for (int level = 3; level >= 0; --level) {
            const std::uint64_t entry = word(m, table + ((at >> (12 + 9 * level)) & 511) * 8);
            if (!(entry & pte::kPresent))
                return false;
            table = entry & pte::kAddress;
        }
        return true;
    }
    std::uint64_t& leaf(Image& m, std::uint64_t at) const { return word(m, entry_at(m, at, 0)); }
    std::byte* page(Image& m, std::uint64_t at) const { return m.data() + (leaf(m, at) & pte::kAddress); }
    std::vector<std::byte> content(Image& m, std::uint64_t at, std::uint64_t pages) const {
        std::vector<std::byte> out;
        for (std::uint64_t i = 0; i < pages; ++i)
            out.insert(out.end(), page(m, at + i * kPageSize), page(m, at + i * kPageSize) + kPageSize);
        return out;
    }
    // Whether a machine of the image answers as it should.
    bool serves(std::shared_ptr<const MachineImage> image) {
        const auto machine = Machine::clone(world.env, image, world.host, ResetStrategy::working_set);
        const std::uint32_t request[2] = {0, 0};
        const std::uint32_t slot = connect_client(*machine, {reinterpret_cast<const char*>(request), sizeof(request)});
        world.host.allow(10);
        const Stop stop = machine->run();
        INFO(stop.report);
        return stop.kind == StopKind::waiting && take_reply(*machine, slot).size() == 30 * 8;
    }
};

} // namespace

TEST_CASE("the code at CPL 0 that is made for a guest kernel is what that guest kernel has") {
    Privileged s;
    const auto m = s.memory();
    CHECK((supervisor_code(s.kernel) == s.content(*m, s.code, (s.kernel.supervisor_end - s.code) / kPageSize)));
    auto tables = cpu_tables(s.kernel, s.world.env.kind.pvm_entry);
    tables.resize(2 * kPageSize); // but for the stack, on which the last exception still is
    CHECK((tables == s.content(*m, layout::kCpuTables, 2)));
    // Of another build, whose data lies elsewhere.
    abi::KernelHeader other = s.kernel;
    other.entry_rip += 0x1000;
    const auto own = supervisor_code(s.kernel), moved = supervisor_code(other);
    std::size_t different = 0;
    for (std::size_t i = 0; i < own.size(); ++i)
        different += own[i] != moved[i];
    CHECK(different >= 1);
    CHECK(different <= 4); // of one distance
}

TEST_CASE("what a file has in the place of the code at CPL 0 and of the descriptor tables is not used") {
    Privileged s;
    const auto with = [&](const char* what, auto&& spoil) {
        INFO(what);
        const auto m = s.memory();
        spoil(*m);
        const auto image = s.restore(s.state, m);
        CHECK((s.content(*m, s.code, 1) == supervisor_code(s.kernel)));
        CHECK((s.content(*m, layout::kCpuTables, 3) == cpu_tables(s.kernel, s.world.env.kind.pvm_entry)));
        constexpr std::uint64_t kRights = pte::kPresent | pte::kWrite | pte::kUser | pte::kNoExecute;
        CHECK((s.leaf(*m, s.code) & kRights) == pte::kPresent);
        for (std::uint64_t i = 0; i < 3; ++i)
            CHECK((s.leaf(*m, layout::kCpuTables + i * kPageSize) & kRights) ==
                  (pte::kPresent | pte::kWrite | pte::kNoExecute));
        CHECK(s.serves(image));
    };
    const auto fill = [&](Image& m, std::uint64_t at, int byte) { std::memset(s.page(m, at), byte, kPageSize); };
    with("code that halts", [&](Image& m) { fill(m, s.code, 0xf4); });
    with("tables of zeros", [&](Image& m) { fill(m, layout::kCpuTables, 0); });
    with("tables of ones", [&](Image& m) { fill(m, layout::kCpuTables, 0xff); });
    with("all ports allowed", [&](Image& m) { fill(m, layout::kCpuTables + kPageSize, 0); });
    with("gates to the program", [&](Image& m) {
        for (std::uint64_t vector = 0; vector < 32; ++vector) { // where its code would be at CPL 0
            const std::uint64_t to = s.user,
                                gate = (to & 0xffff) | (0x08ull << 16) | (0xeeull << 40) | ((to >> 16 & 0xffff) << 48);
            std::memcpy(s.page(m, layout::kCpuTables) + 0x100 + vector * 16, &gate, 8);
        }
    });
    with("a stack elsewhere", [&](Image& m) {
        const std::uint64_t at = s.user + kPageSize;
        std::memcpy(s.page(m, layout::kCpuTables) + 0x804, &at, 8);
    });
    with("tables for all", [&](Image& m) { s.leaf(m, layout::kCpuTables) |= pte::kUser; });
    with("code that may be written to", [&](Image& m) { s.leaf(m, s.code) |= pte::kUser | pte::kWrite; });
    with("tables that cannot be executed or written to",
         [&](Image& m) { s.leaf(m, layout::kCpuTables) &= ~pte::kWrite; });
    with("tables that are still to come", [&](Image& m) {
        s.leaf(m, layout::kCpuTables) = (s.leaf(m, layout::kCpuTables) & ~pte::kPresent) | pte::kLazy;
    });
}

TEST_CASE("a file by which more would run at CPL 0, or somebody else would reach what does, is refused", "[alike]") {
    Privileged s;
    const auto with = [&](const char* what, auto&& spoil) {
        const auto m = s.memory();
        spoil(*m);
        refused(what, [&] { s.restore(s.state, m); });
    };
    const auto with_state = [&](const char* what, auto&& spoil) {
        MachineState bad = s.state;
        for (RegionState& r : bad.regions)
            spoil(r);
        refused(what, [&] { s.restore(bad); });
    };
    for (const std::uint64_t at :
         {s.code, layout::kCpuTables, layout::kCpuTables + kPageSize, layout::kCpuTables + 2 * kPageSize}) {
        INFO(std::hex << at);
        const auto frame = [&](Image& m) { return s.leaf(m, at) & pte::kAddress; };
        with("the program's page is that one",
             [&](Image& m) { s.leaf(m, s.user) = (s.leaf(m, s.user) & ~pte::kAddress) | frame(m); });
        with("the program's page is that one, later", [&](Image& m) {
            s.leaf(m, s.user) = ((s.leaf(m, s.user) & ~(pte::kAddress | pte::kPresent)) | frame(m) | pte::kLazy);
        });
        with("the page shared with the host is that one",
             [&](Image& m) { s.leaf(m, layout::kShared) = (s.leaf(m, layout::kShared) & ~pte::kAddress) | frame(m); });
        with("an address without a region leads there", [&](Image& m) {
            const std::uint64_t entry = frame(m) | pte::kPresent | pte::kUser | pte::kWrite;
            s.word(m, s.entry_at(m, layout::kCpuTables + 5 * kPageSize, 0)) = entry;
        });
        with("it is nowhere", [&](Image& m) { s.leaf(m, at) = 0; });
        with("it is a page table",
             [&](Image& m) { s.leaf(m, at) = (s.leaf(m, at) & ~pte::kAddress) | s.state.page_table_root; });
    }
    with("one page for both", [&](Image& m) {
        s.leaf(m, layout::kCpuTables) =
            (s.leaf(m, layout::kCpuTables) & ~pte::kAddress) | (s.leaf(m, s.code) & pte::kAddress);
    });
    with("a page of the program's for CPL 0", [&](Image& m) { s.leaf(m, s.user) &= ~pte::kUser; });
    with("a page of the guest kernel's for CPL 0", [&](Image& m) { s.leaf(m, s.kernel.text_begin) &= ~pte::kUser; });
    for (const std::uint64_t beyond : {0u, 1u, 100u, 1u << 20})
        for (int level = 0; level < 4; ++level)
            with("an entry that leads to what a clone gets later", [&](Image& m) {
                s.word(m, s.entry_at(m, s.user, level)) = ((s.state.frames + beyond) * kPageSize) | 0x67;
            });
    with("addresses of the upper half", [&](Image& m) {
        s.word(m, s.state.page_table_root + 256 * 8) =
            s.word(m, s.entry_at(m, s.user, 3)); // another's table, so a circle too
    });
    with("tables of its own in the upper half", [&](Image& m) {
        std::uint64_t& last = s.word(m, s.state.page_table_root + 511 * 8);
        std::swap(last, s.word(m, s.entry_at(m, s.user, 3)));
    });
    const auto header = [&](Image& m) { return reinterpret_cast<abi::KernelHeader*>(s.page(m, layout::kKernelImage)); };
    with("an entry elsewhere", [&](Image& m) { header(m)->hardware_entry = s.kernel.text_begin; });
    with("stubs elsewhere", [&](Image& m) { header(m)->exception_stubs = s.kernel.text_begin; });
    with("stubs of another size", [&](Image& m) { header(m)->exception_stride = 8; });
    with("all of it elsewhere", [&](Image& m) {
        const std::uint64_t by = s.kernel.text_begin - s.code;
        for (std::uint64_t* each : {&header(m)->hardware_entry, &header(m)->exception_stubs,
                                    &header(m)->supervisor_begin, &header(m)->supervisor_end})
            *each += by;
    });
    with("a door that writes to the descriptor tables",
         [&](Image& m) { header(m)->entry_rip = layout::kCpuTables + 0x100; });
    with("a door that writes to what cannot be written to",
         [&](Image& m) { header(m)->entry_rip = s.kernel.text_begin; });
    with("a door that writes to the code at CPL 0", [&](Image& m) { header(m)->entry_rip = s.code; });
    with("a door that writes over a page's end",
         [&](Image& m) { header(m)->entry_rip = s.kernel.data_begin + kPageSize - 4; });
    with("a door that leads out", [&](Image& m) { header(m)->syscall_entry = std::uint64_t{1} << 47; });
    const auto tables = [](const RegionState& r) { return r.begin == layout::kCpuTables; };
    const auto code = [&](const RegionState& r) { return r.begin == s.code; };
    with_state("tables of the program's", [&](RegionState& r) { r.flags = tables(r) ? 1 : r.flags; });
    with_state("tables of nobody's", [&](RegionState& r) { r.flags = tables(r) ? 0 : r.flags; });
    with_state("tables shared", [&](RegionState& r) { r.flags = tables(r) ? r.flags | 8 : r.flags; });
    with_state("tables that wipe themselves", [&](RegionState& r) { r.flags = tables(r) ? r.flags | 4 : r.flags; });
    with_state("tables and more", [&](RegionState& r) { r.end += tables(r) ? kPageSize : 0; });
    with_state("fewer tables", [&](RegionState& r) { r.end -= tables(r) ? kPageSize : 0; });
    with_state("code that may be written to", [&](RegionState& r) { r.prot = code(r) ? 7 : r.prot; });
    with_state("code of the program's", [&](RegionState& r) { r.flags = code(r) ? 1 : r.flags; });
    with_state("no regions of them", [&](RegionState& r) { r.end = tables(r) ? r.end + 0x10000 : r.end; });
}
