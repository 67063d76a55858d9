// Snapshots that somebody has tampered with: what from_state() can see is refused, what it cannot see harms nobody.
#include <sys/mman.h>

#include <set>

#include "tests/kvm/tampered.hpp"
#include "tinykvm/abi/layout.hpp"
#include "tinykvm/machine/late_env.hpp"
#include "tinykvm/memory/large_pages.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

TEST_CASE("a sound state comes back as it was and serves") {
    Snapshot s;
    const auto image = s.restore(s.state);
    CHECK(image->regions->size() == s.state.regions.size());
    CHECK(to_state(*image, s.world.env, ProgramSpec{}).regions == s.state.regions);
    const auto machine = Machine::clone(s.world.env, image, s.world.host, ResetStrategy::working_set);
    const std::uint32_t request[2] = {0, 0};
    const std::uint32_t slot = connect_client(*machine, {reinterpret_cast<const char*>(request), sizeof(request)});
    s.world.host.allow(30);
    CHECK(machine->run().kind == StopKind::waiting);
    CHECK(take_reply(*machine, slot).size() == 30 * 8);
}

TEST_CASE("values that no machine has are refused", "[alike]") {
    Snapshot s;
    const auto with = [&](const char* what, auto&& spoil) {
        MachineState bad = s.state;
        spoil(bad);
        refused(what, [&] { s.restore(bad); });
    };
    with("guest ABI", [](MachineState& m) { m.guest_abi ^= 1; });
    with("root not of a page", [](MachineState& m) { m.page_table_root += 8; });
    with("root outside", [](MachineState& m) { m.page_table_root = std::uint64_t{m.frames} * kPageSize; });
    with("root far outside", [](MachineState& m) { m.page_table_root = ~std::uint64_t{0} << 12; });
    with("root whose frame number would be cut", [](MachineState& m) { m.page_table_root |= std::uint64_t{1} << 44; });
    with("too few frames", [](MachineState& m) { --m.frames; });
    with("too many frames", [](MachineState& m) { ++m.frames; });
    with("no frames", [](MachineState& m) { m.frames = 0; });
    with("regions overlap", [](MachineState& m) { m.regions[1].begin = m.regions[0].end - kPageSize; });
    with("regions not in order", [](MachineState& m) { std::swap(m.regions[0], m.regions[1]); });
    with("a region twice", [](MachineState& m) { m.regions.insert(m.regions.begin(), m.regions[0]); });
    with("an empty region", [](MachineState& m) { m.regions[0].end = m.regions[0].begin; });
    with("a region backwards", [](MachineState& m) { m.regions[0].end = m.regions[0].begin - kPageSize; });
    with("a region of half a page", [](MachineState& m) { m.regions[0].end -= 1; });
    with("a region from half a page", [](MachineState& m) { m.regions[0].begin += 1; });
    with("a region beyond everything", [](MachineState& m) { m.regions.back().end = ~std::uint64_t{0} << 12; });
    with("rights there are not", [](MachineState& m) { m.regions[0].prot = 0x80; });
    with("a listener there is not", [](MachineState& m) { m.listeners[0].id = abi::kMaxListeners; });
    with("a listener without an address", [](MachineState& m) { m.listeners[0].address.clear(); });
    with("a listener with half an address", [](MachineState& m) { m.listeners[0].address.resize(1); });
    with("a listener with too long an address", [](MachineState& m) { m.listeners[0].address.resize(129); });
    with("a working set outside", [](MachineState& m) { m.working_set = {{m.frames, 1}}; });
    with("a working set that ends outside", [](MachineState& m) { m.working_set = {{0, m.frames + 1}}; });
    with("a working set that wraps", [](MachineState& m) { m.working_set = {{1, ~0u}}; });
    with("headroom within", [](MachineState& m) { m.headroom = {{m.frames - 1, 1}}; });
    with("a break outside", [](MachineState& m) { m.brk_end = ~std::uint64_t{0}; });
    with("a break backwards", [](MachineState& m) { m.brk_end = m.brk_begin - kPageSize; });
    // That there is no large page anywhere in this program makes no difference: what is not sound is told first.
    const std::uint64_t large = LargePages::kBytes;
    const auto with_large = [&](const char* what, std::vector<LargePageState> pages) {
        with(what, [&](MachineState& m) { m.large_pages = std::move(pages); });
    };
    with_large("a large page where nothing is", {{large, {}, {}}});
    with_large("a large page that is not aligned", {{s.state.regions[0].begin + kPageSize, {}, {}}});
    with_large("a large page in the guest kernel", {{layout::kKernelImage, {}, {}}});
    with_large("a large page of the stack", {{(layout::kStackTop - 1) & ~(large - 1), {}, {}}});
    with_large("a large page beyond everything", {{~(large - 1), {}, {}}});
    MachineState no_cpu = s.state;
    no_cpu.cpu.cpuid.clear();
    refused("no CPUID", [&] { guest_cpu(no_cpu.cpu); });
    no_cpu.cpu.cpuid.resize(kvm::kMaxCpuidEntries + 1);
    refused("too much CPUID", [&] { guest_cpu(no_cpu.cpu); });
}

TEST_CASE("an image without its guest kernel is refused", "[alike]") {
    Snapshot s;
    const auto with = [&](const char* what, auto&& spoil) {
        const auto memory = s.memory();
        spoil(*memory);
        refused(what, [&] { s.use(s.restore(s.state, memory), ResetStrategy::working_set); });
    };
    with("an empty image", [&](Image& m) { std::memset(m.data(), 0, m.bytes().size()); });
    for (const std::uint64_t page :
         {layout::kKernelImage, layout::kShared, layout::kTimePage, layout::kConnTable, layout::kConnTable + kPageSize})
        for (int level = 0; level < 4; ++level) {
            INFO("page " << std::hex << page << " level " << level);
            with("an entry that is missing", [&](Image& m) { s.word(m, s.entry_at(m, page, level)) = 0; });
            for (const std::uint64_t outside : {std::uint64_t{1} << 40, std::uint64_t{1} << 44, std::uint64_t{1} << 51})
                with("an entry that points outside",
                     [&](Image& m) { s.word(m, s.entry_at(m, page, level)) = outside | 0x67; });
        }
    with("a connection table in two pieces", [&](Image& m) {
        std::swap(s.word(m, s.entry_at(m, layout::kConnTable + kPageSize, 0)),
                  s.word(m, s.entry_at(m, layout::kConnTable + 2 * kPageSize, 0)));
    });
    const auto header = [&](Image& m) {
        return reinterpret_cast<abi::KernelHeader*>(
            m.data() + (s.word(m, s.entry_at(m, layout::kKernelImage, 0)) & pte::kAddress));
    };
    with("another magic", [&](Image& m) { header(m)->magic ^= 1; });
    with("another version", [&](Image& m) { header(m)->version ^= 1; });
    with("an entry that is no address", [&](Image& m) { header(m)->syscall_entry = std::uint64_t{1} << 60; });
    with("a way on outside of the guest kernel", [&](Image& m) { header(m)->wait_resume = 0x1000; });
}

TEST_CASE("page tables in a circle are refused", "[alike]") {
    Snapshot s;
    for (int level = 1; level < 4; ++level) {
        const auto memory = s.memory();
        s.word(*memory, s.entry_at(*memory, 0x5555'5555'4000, level > 2 ? level : 3)) = s.state.page_table_root | 0x67;
        refused("to the root", [&] { s.restore(s.state, memory); });
    }
    const auto memory = s.memory();
    for (std::uint64_t i = 0; i < 512; ++i)
        s.word(*memory, s.state.page_table_root + i * 8) = s.state.page_table_root | 0x67;
    refused("all to the root", [&] { s.restore(s.state, memory); });
}

TEST_CASE("page tables with large pages are refused", "[alike]") {
    Snapshot s;
    for (int level = 1; level < 4; ++level)
        for (const std::uint64_t to :
             {LargePages::kAt.value, LargePages::kAt.value + 7 * LargePages::kBytes, std::uint64_t{0}}) {
            const auto memory = s.memory();
            s.word(*memory, s.entry_at(*memory, s.state.regions[0].begin, level)) = to | 0xe7;
            refused("a large page", [&] { s.restore(s.state, memory); });
        }
}

TEST_CASE("page tables with random changes harm nobody") {
    Snapshot s;
    // The frames that hold tables.
    std::vector<std::uint64_t> tables;
    {
        kvm::Vm vm = kvm_device().create_vm();
        GuestRam ram = GuestRam::clone(vm, s.memory(), 0);
        PageTables(ram, GuestPhys(s.state.page_table_root)).for_each_table([&](Frame f) {
            tables.push_back(frame_address(f).value);
        });
    }
    int refusals = 0, uses = 0;
    for (unsigned seed = 0; seed < cases(200); ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        const auto memory = s.memory();
        for (unsigned i = 0, n = 1 + random() % (seed % 2 ? 2 : 40); i < n; ++i) {
            std::uint64_t& entry = s.word(*memory, tables[random() % tables.size()] + random() % 512 * 8);
            switch (random() % 6) {
            case 0: entry ^= std::uint64_t{1} << random() % 64; break;
            case 1: entry = random(); break;
            case 2: entry = (random() % (s.state.frames + 16)) << 12 | 0x67; break;
            case 3: entry = tables[random() % tables.size()] | 0x67; break; // a page that is a table
            case 4: entry = (std::uint64_t{1} << (12 + random() % 40)) | 0x267; break;
            case 5: entry = 0; break;
            }
        }
        try {
            s.use(s.restore(s.state, memory), any_strategy(seed));
            ++uses;
        } catch (const UserError& error) {
            REQUIRE(error.code() == ExitCode::bad_snapshot);
            ++refusals;
        }
    }
    CHECK(uses > 0);
    CHECK(refusals > 0);
}

TEST_CASE("environment variables are changed where they lie, and nowhere else") {
    Snapshot s;
    const std::uint64_t at = layout::kStackTop - kPageSize;
    const auto memory = s.memory();
    const std::uint64_t place = s.word(*memory, s.entry_at(*memory, at, 0)) & pte::kAddress;
    REQUIRE(place != 0);
    const auto text = [&] { return std::string(reinterpret_cast<const char*>(memory->data() + place)); };
    std::memcpy(memory->data() + place, "TOKEN=a long one", 17);
    MachineState state = s.state;
    state.late_env = {{"TOKEN", at, 20}};
    std::vector<std::string> warnings;
    const auto set = [&](const std::string& variable) {
        const std::vector<std::string> one{variable};
        return set_late_env(*from_state(state, memory, *s.world.policy, warnings), *memory, one).size();
    };
    CHECK(set("TOKEN=short") == 0);
    CHECK(text() == "TOKEN=short");
    CHECK(memory->data()[place + 13] == std::byte{0}); // nothing is left of what was there
    CHECK(set("TOKEN=0123456789abc") == 0);            // 19 bytes
    CHECK(set("TOKEN=0123456789abcd") == 1);
    CHECK(set("OTHER=1") == 1);
    CHECK(text() == "TOKEN=0123456789abc");

    const std::vector<std::byte> before(memory->bytes().begin(), memory->bytes().end());
    for (const std::uint64_t elsewhere :
         {std::uint64_t{0}, at + 1, at - kPageSize, at - layout::kStackBytes, std::uint64_t{1} << 40}) {
        CAPTURE(elsewhere);
        state.late_env = {{"TOKEN", elsewhere, 20}};
        CHECK(set("TOKEN=x") == 1);
    }
    CHECK(std::equal(before.begin(), before.end(), memory->data()));
    for (const LateVariable& late :
         {LateVariable{"TOKEN", layout::kUserMax, 20}, LateVariable{"TOKEN", layout::kUserMax - 19, 20},
          LateVariable{"", at, 20}, LateVariable{"TOKEN", at, 1 << 17}, LateVariable{"TOKEN", ~std::uint64_t{0}, 20}}) {
        state.late_env = {late};
        refused("a variable that is nowhere", [&] { set("TOKEN=x"); });
    }
    // Tables that lead elsewhere.
    state.late_env = {{"TOKEN", at, 20}};
    for (int level = 0; level < 4; ++level) {
        const auto broken = s.memory();
        s.word(*broken, s.entry_at(*broken, at, level)) = ~std::uint64_t{0};
        const std::vector<std::string> one{"TOKEN=x"};
        CHECK(set_late_env(*from_state(state, broken, *s.world.policy, warnings), *broken, one).size() == 1);
    }
}

TEST_CASE("entropy regions are filled before every invocation, and only where the program may write") {
    Snapshot s;
    const std::uint64_t at = layout::kStackTop - kPageSize; // a page of the stack
    MachineState state = s.state;
    const std::vector<std::uint8_t> constant{1, 2, 3, 4, 5, 6};
    state.entropy = {{at - 10, 20, EntropyFill::random, {}, "two pages"},
                     {at + 16, 6, EntropyFill::constant, constant, "index"},
                     {at + 32, 4, EntropyFill::pid, {}, "process number"}};
    for (const ResetStrategy strategy : strategies()) {
        const auto memory = s.memory();
        s.restore(s.state, memory); // as it is
        const auto image = s.restore(state, memory);
        FakeHost host;
        const auto machine = Machine::clone(s.world.env, image, host, strategy);
        const auto bytes = [&](std::uint64_t from, std::size_t count) {
            std::vector<std::uint8_t> out(count);
            REQUIRE(machine->space().read(GuestVirt(from), std::as_writable_bytes(std::span(out))));
            return out;
        };
        std::set<std::vector<std::uint8_t>> seen, pids;
        for (int i = 0; i < 50; ++i) {
            CHECK(seen.insert(bytes(at - 10, 20)).second);
            CHECK(bytes(at + 16, 6) == constant);
            CHECK(pids.insert(bytes(at + 32, 4)).second);
            machine->reset();
            CHECK(machine->compare_with_image() == "");
            machine->prepare();
        }
    }
}

TEST_CASE("entropy regions that lie elsewhere are refused", "[alike]") {
    Snapshot s;
    const auto memory = s.memory();
    const std::uint64_t at = layout::kStackTop - kPageSize;
    const auto refuse = [&](const EntropyRegion& region) {
        CAPTURE(region.at, region.bytes, static_cast<int>(region.fill));
        MachineState state = s.state;
        state.entropy = {region};
        refused("an entropy region", [&] { s.use(s.restore(state, memory), ResetStrategy::working_set); });
    };
    refuse({0, 8, EntropyFill::random, {}, ""});
    refuse({at, 0, EntropyFill::random, {}, ""});
    refuse({at, (1 << 20) + 1, EntropyFill::random, {}, ""});
    refuse({at, 2 * kPageSize, EntropyFill::random, {}, ""}); // beyond the stack
    refuse({~std::uint64_t{0}, 8, EntropyFill::random, {}, ""});
    refuse({layout::kUserMax - 4, 8, EntropyFill::random, {}, ""});
    refuse({layout::kShared, 8, EntropyFill::random, {}, ""});
    refuse({layout::kKernelImage, 8, EntropyFill::random, {}, ""});
    refuse({at, 8, static_cast<EntropyFill>(3), {}, ""});
    refuse({at, 8, EntropyFill::constant, {1, 2, 3}, ""});
    refuse({at, 8, EntropyFill::random, {1, 2, 3, 4, 5, 6, 7, 8}, ""});
    refuse({at, 8, EntropyFill::pid, {}, ""});
    refuse({at + 2, 4, EntropyFill::pid, {}, ""});
    const auto image = s.restore(s.state, memory);
    for (const auto& [begin, region] : *image->regions)
        if ((region.prot & PROT_WRITE) == 0 && begin < layout::kUserMax)
            refuse({begin, 8, EntropyFill::random, {}, ""});
    MachineState twice = s.state;
    twice.entropy = {{at, 8, EntropyFill::random, {}, ""}, {at + 4, 8, EntropyFill::random, {}, ""}};
    refused("regions that overlap", [&] { s.restore(twice, memory); });
}

TEST_CASE("random bytes all over the image harm nobody") {
    Snapshot s;
    for (unsigned seed = 0; seed < cases(100); ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        const auto memory = s.memory();
        for (int i = 0; i < 3000; ++i)
            s.word(*memory, random() % (s.bytes.size() / 8) * 8) = random() % 2 ? random() : random() % s.bytes.size();
        try {
            s.use(s.restore(s.state, memory), any_strategy(seed));
        } catch (const UserError& error) {
            REQUIRE(error.code() == ExitCode::bad_snapshot);
        }
    }
}

TEST_CASE("values that only the program suffers from do not stop the process") {
    Snapshot s;
    const auto with = [&](auto&& spoil) {
        MachineState bad = s.state;
        spoil(bad);
        s.use(s.restore(bad), ResetStrategy::working_set);
    };
    for (const std::uint64_t at :
         {std::uint64_t{0}, ~std::uint64_t{0}, layout::kShared, layout::kCpuTables, std::uint64_t{1} << 62})
        with([&](MachineState& m) { m.random_at = at; });
    with([](MachineState& m) { m.mono_ns = ~std::uint64_t{0}; });
    with([](MachineState& m) { m.threads = ~0u; });
    constexpr std::uint32_t kSupervisor = 2; // those of the guest kernel at CPL 0 are refused: test_privileged.cpp
    with([](MachineState& m) {
        std::erase_if(m.regions, [](const RegionState& r) { return (r.flags & kSupervisor) == 0; });
    });
    with([](MachineState& m) {
        for (RegionState& r : m.regions)
            r.flags = r.flags & kSupervisor ? r.flags : ~kSupervisor;
    });
    with([](MachineState& m) {
        for (RegionState& r : m.regions)
            r.prot = r.flags & kSupervisor ? r.prot : 7;
    });
    with([](MachineState& m) {
        for (RegionState& r : m.regions)
            r.name = "/dev/tty";
    });
    with([](MachineState& m) { m.listeners.assign(1000, m.listeners[0]); });
}
