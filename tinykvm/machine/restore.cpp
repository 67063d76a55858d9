#include "tinykvm/machine/restore.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tinykvm/abi/layout.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/guest/embed.hpp"
#include "tinykvm/machine/large_pages.hpp"
#include "tinykvm/machine/loop_region.hpp"
#include "tinykvm/machine/mapped_files.hpp"
#include "tinykvm/machine/privileged.hpp"

namespace tinykvm {
namespace {

[[noreturn]] void bad(const std::string& what) { throw UserError(ExitCode::bad_snapshot, "snapshot: " + what); }

// The page tables that a walk has visited. Those of a machine form a tree; anything else is rejected.
class Visited {
public:
    explicit Visited(const Image& memory) : seen_(memory.frames()) {}
    void enter(GuestPhys table) {
        const Frame frame = frame_of(table);
        if (seen_[frame])
            bad("its page tables lead to each other; build it again");
        seen_[frame] = true;
    }
    bool has(Frame table) const { return seen_[table]; }

private:
    std::vector<bool> seen_;
};

// Calls fn(address, leaf entry) for each leaf of the page tables in an image. Rejects entries that point beyond the
// image: they would point to frames that a clone adds later, including page tables.
template <class Fn>
void for_each_leaf(Image& memory, Visited& visited, GuestPhys table, int level, std::uint64_t virt, Fn&& fn) {
    visited.enter(table);
    memory.ensure(static_cast<std::uint32_t>(table.value / kPageSize));
    auto* entries = reinterpret_cast<std::uint64_t*>(memory.data() + table.value);
    for (std::uint64_t i = 0; i < 512; ++i) {
        std::uint64_t& entry = entries[i];
        if (level > 0 && (entry & pte::kPresent) && (entry & pte::kLarge))
            bad("its page tables have large pages; build it again");
        if (!pte::mapped(entry))
            continue;
        if (pte::frame(entry) >= memory.frames())
            bad("its page tables lead beyond its memory; build it again");
        if (level == 3 && i >= 256)
            bad("its page tables have addresses that no program has; build it again");
        const std::uint64_t at = virt | i << (12 + 9 * level);
        if (level == 0)
            fn(at, entry);
        else
            for_each_leaf(memory, visited, GuestPhys(entry & pte::kAddress), level - 1, at, fn);
    }
}

// Divides the hot pages between the first and the second vCPU, with about the same number of faults for each.
void divide_prefaulting(MachineImage& image, const std::vector<std::uint64_t>& hot) {
    constexpr std::uint64_t kBlock = 8 * kPageSize; // KVM maps at most this much per fault
    std::size_t blocks = 0;
    for (std::size_t i = 0; i < hot.size(); ++i)
        blocks += i == 0 || hot[i] / kBlock != hot[i - 1] / kBlock ? 1 : 0;
    std::size_t blocks_so_far = 0;
    for (std::size_t i = 0; i < hot.size(); ++i) {
        blocks_so_far += i == 0 || hot[i] / kBlock != hot[i - 1] / kBlock ? 1 : 0;
        (blocks_so_far <= blocks / 2 ? image.hot_second_vcpu : image.hot_pages).push_back(hot[i]);
    }
}

} // namespace

CpuState cpu_state(const kvm::GuestCpu& cpu) {
    CpuState state;
    state.xcr0 = cpu.xcr0;
    for (std::uint32_t i = 0; i < cpu.table.nent; ++i) {
        const kvm_cpuid_entry2& e = cpu.table.entries[i];
        state.cpuid.push_back({e.function, e.index, e.flags, e.eax, e.ebx, e.ecx, e.edx});
    }
    return state;
}

kvm::GuestCpu guest_cpu(const CpuState& state) {
    kvm::GuestCpu cpu;
    cpu.xcr0 = state.xcr0;
    cpu.xsave_bytes = kvm::kFxsaveBytes; // unless a leaf says otherwise: the CPU has no XSAVE
    if (state.cpuid.empty() || state.cpuid.size() > kvm::kMaxCpuidEntries)
        bad(fmt::format("{} CPUID leaves; build the snapshot anew", state.cpuid.size()));
    for (const CpuidLeaf& leaf : state.cpuid) {
        kvm_cpuid_entry2& e = cpu.table.entries[cpu.table.nent++];
        e.function = leaf.function;
        e.index = leaf.index;
        e.flags = leaf.flags;
        e.eax = leaf.eax;
        e.ebx = leaf.ebx;
        e.ecx = leaf.ecx;
        e.edx = leaf.edx;
        if (leaf.function == 0xd && leaf.index == 0)
            cpu.xsave_bytes = leaf.ebx;
    }
    return cpu;
}

MachineState to_state(const MachineImage& image, const MachineEnv& env, const ProgramSpec& program) {
    MachineState state;
    state.guest_abi = abi::kVersion;
    state.guest_kernel_digest = guest_kernel_sha256();
    state.entry_mode = env.kind.pvm_entry ? abi::kEntryPvm : abi::kEntryHardware;
    state.page_table_root = image.root.value;
    state.frames = image.image->frames();
    for (const auto& [begin, region] : *image.regions)
        state.regions.push_back({begin, region.end, region.prot, region.flags, region.name});
    state.brk_begin = image.brk_begin;
    state.brk_end = image.brk_end;
    state.clock_continues = env.options.time == GuestTime::continues;
    state.fork = env.options.fork;
    state.mono_ns = image.times.mono;
    state.boot_ns = image.times.boot;
    state.real_ns = image.times.real;
    state.random_at = image.random_at;
    state.late_env = image.late_env;
    state.entropy = image.entropy;
    state.large_pages = image.large_pages;
    state.threads = image.threads;
    state.working_set = image.working_set;
    if (image.headroom != 0)
        state.headroom = {{state.frames, image.headroom}};
    state.cpu = cpu_state(env.cpu);
    state.listeners = image.listeners;
    state.file_mappings = mapping_states(*image.regions, *image.handles);
    state.handles = HandleTable(image.handles, env.limits.open_files).states();
    state.program.path = program.script.empty() ? program.path : program.script;
    state.program.args = program.args;
    for (const std::string& entry : program.env)
        state.program.env_names.push_back(entry.substr(0, entry.find('=')));
    for (const LateVariable& late : image.late_env)
        state.program.env_names.push_back(late.name);
    state.program.cwd = program.cwd;
    state.permissions = env.policy->permissions();
    state.limits = env.limits;
    return state;
}

std::shared_ptr<MachineImage> from_state(const MachineState& state, std::shared_ptr<Image> memory, const Policy& policy,
                                         std::vector<std::string>& warnings) {
    if (state.guest_abi != abi::kVersion)
        bad(fmt::format("made with guest kernel version {}, this is {}; build it again", state.guest_abi,
                        abi::kVersion));
    if ((state.page_table_root & (kPageSize - 1)) != 0 || state.page_table_root / kPageSize >= state.frames ||
        state.frames != memory->frames())
        bad("its page tables are outside of its memory");
    auto image = std::make_shared<MachineImage>();
    AddressSpace::Regions regions;
    if (state.regions.size() > AddressSpace::kMaxRegions)
        bad(fmt::format("{} regions of an address space, at most {} are possible", state.regions.size(),
                        AddressSpace::kMaxRegions));
    std::uint64_t last = 0;
    for (const RegionState& r : state.regions) {
        if (r.begin < last || r.end <= r.begin || ((r.begin | r.end) & (kPageSize - 1)) != 0 ||
            r.end > layout::kFileArea + layout::kFileAreaBytes || (r.prot & ~7u) != 0)
            bad(fmt::format("region {:#x}-{:#x} is not a region of an address space", r.begin, r.end));
        last = r.end;
        Region region;
        region.end = r.end;
        region.prot = r.prot;
        region.flags = r.flags & (kRegionUser | kRegionSupervisor | kRegionWipeOnFork | kRegionShared | kRegionFrozen |
                                  kRegionGrowsDown);
        region.name = r.name;
        regions.emplace(r.begin, std::move(region));
    }
    for (const ListenerState& l : state.listeners)
        if (l.id >= abi::kMaxListeners || l.address.size() < 2 || l.address.size() > 128)
            bad("a listener without a sound address");
    if (state.brk_begin > state.brk_end || state.brk_end > layout::kUserMax)
        bad(fmt::format("its break is {:#x}-{:#x}", state.brk_begin, state.brk_end));
    constexpr std::uint64_t kMaxLateBytes = 1 << 16;
    for (const LateVariable& late : state.late_env)
        if (late.name.empty() || late.bytes > kMaxLateBytes || late.at >= layout::kUserMax ||
            late.bytes > layout::kUserMax - late.at)
            bad("an environment variable that is outside of its memory");
    check_entropy_regions(state.entropy);
    std::uint64_t entropy_end = 0;
    for (const EntropyRegion& region : state.entropy) {
        if (region.at < std::exchange(entropy_end, region.at + region.bytes))
            bad("its entropy regions are not in order");
    }
    image->entropy = state.entropy;
    image->keep_pid = must_keep_pid(regions) && !knows_running_loop(state.entropy);
    image->root = GuestPhys(state.page_table_root);
    image->brk_begin = state.brk_begin;
    image->brk_end = state.brk_end;
    image->times = {state.mono_ns, state.boot_ns, state.real_ns};
    image->random_at = state.random_at;
    image->late_env = state.late_env;
    image->listeners = state.listeners;
    image->threads = state.threads;
    for (const FrameRun& run : state.working_set) {
        if (run.first > state.frames || run.count > state.frames - run.first)
            bad("its working set is outside of its memory");
        image->working_set.push_back(run);
    }
    for (const FrameRun& run : state.headroom) {
        if (run.first != state.frames)
            bad("a region that grows is not after its memory");
        image->headroom = run.count;
    }
    HandleTable table = HandleTable::restore(state.handles, policy, state.limits.open_files, warnings);
    image->handles = table.freeze();
    restore_mappings(regions, state.file_mappings, *image->handles);
    image->regions = std::make_shared<const AddressSpace::Regions>(std::move(regions));
    image->image = std::move(memory);
    if (!state.large_pages.empty()) {
        LargeCandidates candidates(*image);
        GuestVirt before;
        for (const LargePageState& page : state.large_pages)
            if (const GuestVirt at(page.at); at <= std::exchange(before, at) || !candidates.fits(at))
                bad(fmt::format("{:#x} cannot hold a large page", page.at));
        image->large_pages = state.large_pages;
    }
    return image;
}

void clear_marks(const MachineImage& image, Image& memory) {
    Visited visited(memory);
    const auto visit = [&](auto&& self, GuestPhys table, int level) -> void {
        visited.enter(table);
        auto* entries = reinterpret_cast<std::uint64_t*>(memory.data() + table.value);
        for (std::uint64_t i = 0; i < 512; ++i) {
            if (!pte::mapped(entries[i]) || pte::frame(entries[i]) >= memory.frames())
                continue;
            if (level == 0) {
                entries[i] &= ~pte::kDirty;
            } else {
                entries[i] &= ~pte::kAccessed;
                self(self, GuestPhys(entries[i] & pte::kAddress), level - 1);
            }
        }
    };
    visit(visit, image.root, 3);
}

std::uint64_t make_lazy(MachineImage& image, Image& memory, bool shadow_paging, Frame hot_end) {
    std::uint64_t lazy = 0;
    Visited first(memory), second(memory);
    PrivilegedPages privileged(image, memory);
    auto region = image.regions->begin(); // leaves come in ascending order of addresses
    const auto find_region = [&](std::uint64_t at) {
        while (region != image.regions->end() && region->second.end <= at)
            ++region;
        return region != image.regions->end() && at >= region->first;
    };
    // Pages that the host itself writes to must be loaded from the start, or later loading would undo the writes: the
    // guest kernel, pages that the host accesses by pointer, and memory that is wiped in every clone.
    for_each_leaf(memory, first, image.root, 3, 0, [&](std::uint64_t at, std::uint64_t& entry) {
        if ((at >= layout::kUserMax && at < layout::kFileArea) ||
            (find_region(at) && (region->second.flags & kRegionWipeOnFork) != 0))
            memory.ensure(pte::frame(entry));
    });
    region = image.regions->begin();
    std::vector<bool> written(memory.frames()), seen(memory.frames());
    for (const FrameRun& run : image.working_set)
        std::fill_n(written.begin() + run.first, run.count, true);
    std::vector<bool> twice(memory.frames());            // frames with two addresses: may be written to through either
    const std::vector<bool> in_part = memory.in_parts(); // for such frames there is nothing to share in the memfd
    std::vector<Frame> files, read_only;
    std::vector<std::uint64_t> hot; // MachineImage::hot_pages
    const auto of_file = [&](std::uint64_t at) {
        return find_region(at) && region->second.name.starts_with('/') &&
               (region->second.flags & (kRegionWipeOnFork | kRegionSupervisor)) == 0;
    };
    // The host writes to other pages of the guest kernel by pointer, even to those that are read-only for the guest.
    const auto of_kernel_code = [](std::uint64_t at, std::uint64_t entry) {
        return at >= layout::kKernelImage && at - layout::kKernelImage < layout::kKernelImageBytes &&
               !(entry & pte::kWrite);
    };
    for_each_leaf(memory, second, image.root, 3, 0, [&](std::uint64_t at, std::uint64_t& entry) {
        const Frame frame = pte::frame(entry);
        // A reset does not copy tables back: the host undoes its own changes, and nobody else may make any.
        if (first.has(frame))
            bad("its program could write to its page tables; build it again");
        privileged.check(at, entry);
        if (!(entry & pte::kPresent))
            return;
        if (seen[frame])
            twice[frame] = true;
        seen[frame] = true;
        const bool writes = written[frame] && (entry & pte::kWrite);
        const FramePresence presence = memory.presence(frame);
        const bool is_hole = presence == FramePresence::hole;
        const bool is_hot = shadow_paging && frame < hot_end && presence != FramePresence::absent;
        if (is_hot && (entry & pte::kUser) && (writes || !is_hole))
            hot.push_back(at | (writes ? 1 : 0));
        if (presence == FramePresence::absent) {
            entry = (entry & ~pte::kPresent) | pte::kLazy;
            ++lazy;
        } else if (is_hot && (at < layout::kUserMax || of_kernel_code(at, entry)) && !is_hole) {
            const GuestPhys place(static_cast<std::uint64_t>(reinterpret_cast<std::byte*>(&entry) - memory.data()));
            if (!(entry & pte::kWrite))
                (of_file(at) && !in_part[frame] ? files : read_only).push_back(frame);
            else if (!written[frame])
                image.hot_unwritten.push_back({place, entry & ~(pte::kDirty | pte::kAccessed), frame});
        }
    });
    privileged.put_own(shadow_paging);
    for (auto* frames : {&files, &read_only})
        std::erase_if(*frames, [&](Frame frame) { return twice[frame]; });
    for (const Frame frame : files)
        append_frame(image.hot_files, frame);
    // Each shared run is a mapping of its own, so only long runs are worth it. Short ones become private copies.
    constexpr std::uint32_t kWorthSharing = 64;
    std::erase_if(image.hot_files, [&](const FrameRun& run) {
        for (Frame frame = run.first; run.count < kWorthSharing && frame < run.first + run.count; ++frame)
            read_only.push_back(frame);
        return run.count < kWorthSharing;
    });
    for (const Frame frame : read_only)
        append_frame(image.hot_read_only, frame);
    divide_prefaulting(image, hot);
    std::erase_if(image.hot_unwritten, [&](const UnwrittenPage& page) { return twice[page.frame]; });
    for (const UnwrittenPage& page : image.hot_unwritten)
        *reinterpret_cast<std::uint64_t*>(memory.data() + page.entry_at.value) &= ~pte::kDirty;
    return lazy;
}

} // namespace tinykvm
