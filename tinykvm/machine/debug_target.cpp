#include "tinykvm/machine/debug_target.hpp"

#include <elf.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "tinykvm/abi/layout.hpp"

namespace tinykvm {
namespace {

constexpr std::uint32_t kMaxThreads = 1024; // like the guest kernel's
constexpr const char* kVdsoName = "[vdso]";
// RFLAGS that a debugger may change (those of Linux: arch/x86/kernel/ptrace.c, FLAG_MASK) and those always set.
constexpr std::uint64_t kFlagsOfProgram = 0x40cd5, kFlagsSet = 0x3202;
constexpr std::uint64_t kIopl = 0x3000; // the engine's own: programs on Linux have none

std::uint64_t number(const void* address) { return reinterpret_cast<std::uint64_t>(address); }

} // namespace

// Null if the machine's guest kernel is older than the table.
const abi::DebugTable* DebugTarget::table() {
    if (!looked_) {
        looked_ = true;
        const std::uint32_t at = m_.kernel_.debug_table;
        if (at != 0 && at < layout::kKernelImageBytes)
            if (const auto found = m_.space_.load<abi::DebugTable>(GuestVirt(layout::kKernelImage + at))) {
                table_ = *found;
                known_ = true;
            }
    }
    return known_ ? &table_ : nullptr;
}

void DebugTarget::for_each_thread(const std::function<bool(std::uint64_t, std::uint32_t)>& fn) {
    const abi::DebugTable* t = table();
    if (!t)
        return;
    AddressSpace& space = m_.space_;
    const std::uint32_t count =
        std::min(space.load<std::uint32_t>(GuestVirt(number(t->thread_limit))).value_or(0), kMaxThreads);
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint64_t thread = space.load<std::uint64_t>(GuestVirt(number(t->threads) + 8ull * i)).value_or(0);
        const auto state = space.load<std::uint8_t>(GuestVirt(thread + t->state));
        const auto id = space.load<std::uint32_t>(GuestVirt(thread + t->tid));
        if (thread == 0 || !state || !id || *id == 0 || *id > 0x7fffffff || *state == abi::kDebugThreadFree ||
            *state == abi::kDebugThreadDead)
            continue;
        if (fn(thread, *id))
            return;
    }
}

std::vector<debug::ThreadInfo> DebugTarget::threads() {
    std::vector<debug::ThreadInfo> out;
    const std::uint64_t current =
        table() ? m_.space_.load<std::uint64_t>(GuestVirt(number(table()->current))).value_or(0) : 0;
    for_each_thread([&](std::uint64_t thread, std::uint32_t id) {
        const auto name = m_.space_.load<std::array<char, abi::kDebugNameBytes>>(GuestVirt(thread + table()->name));
        if (!name)
            return false;
        debug::ThreadInfo info{id, std::string(name->data(), ::strnlen(name->data(), name->size()))};
        out.insert(thread == current ? out.begin() : out.end(), std::move(info));
        return false;
    });
    return out;
}

bool DebugTarget::place_of(std::uint32_t thread, Place& out) {
    bool found = false;
    for_each_thread([&](std::uint64_t at, std::uint32_t id) {
        if (id != thread)
            return false;
        const abi::DebugTable& t = *table();
        const auto stack = m_.space_.load<std::uint64_t>(GuestVirt(at + t.stack));
        const auto vector = m_.space_.load<std::uint64_t>(GuestVirt(at + t.xsave));
        found = stack && vector;
        if (found)
            out = {*stack + t.stack_bytes - sizeof(abi::ThreadRegisters), at + t.fs_base, at + t.gs_base, *vector};
        return found;
    });
    return found;
}

bool DebugTarget::registers(std::uint32_t thread, debug::Registers& out) {
    Place at;
    if (!place_of(thread, at))
        return false;
    const auto general = m_.space_.load<abi::ThreadRegisters>(GuestVirt(at.registers));
    const auto fs = m_.space_.load<std::uint64_t>(GuestVirt(at.fs_base));
    const auto gs = m_.space_.load<std::uint64_t>(GuestVirt(at.gs_base));
    if (!general || !fs || !gs)
        return false;
    out.general = *general;
    out.general.rip = program_rip(general->rip);
    out.general.rflags &= ~kIopl;
    out.fs_base = *fs;
    out.gs_base = *gs;
    out.vector.assign(debug::vector_bytes(vector_components()), {});
    std::vector<std::byte> own(m_.env_->cpu.xsave_bytes);
    if (!m_.space_.read(GuestVirt(at.vector), own))
        return false;
    copy_vector(own, out.vector, false);
    return true;
}

// Between the layout of this CPU and that of debug::Registers. A component that is not in use may hold anything.
void DebugTarget::copy_vector(std::span<std::byte> own, std::span<std::byte> shown, bool to_own) const {
    const auto copy = [&](std::size_t own_at, std::size_t shown_at, std::size_t bytes) {
        if (own_at + bytes > own.size() || shown_at + bytes > shown.size())
            return;
        if (to_own)
            std::memcpy(own.data() + own_at, shown.data() + shown_at, bytes);
        else
            std::memcpy(shown.data() + shown_at, own.data() + own_at, bytes);
    };
    constexpr std::size_t kInUseBytes = sizeof(std::uint64_t);
    copy(0, 0, debug::kFxsaveBytes);
    if (vector_components() == 0)
        return;
    std::uint64_t in_use;
    copy(debug::kInUseAt, debug::kInUseAt, kInUseBytes);
    std::memcpy(&in_use, shown.data() + debug::kInUseAt, sizeof(in_use));
    const std::pair<unsigned, std::size_t> components[] = {
        {2, debug::kAvxAt}, {5, debug::kMasksAt}, {6, debug::kUpperHalvesAt}, {7, debug::kUpperRegistersAt}};
    for (std::uint32_t i = 0; i < m_.env_->cpu.table.nent; ++i) {
        const auto& leaf = m_.env_->cpu.table.entries[i]; // leaf 0xd: EAX bytes, EBX offset (Intel SDM vol. 1, 13.5)
        for (const auto& [component, at] : components)
            if (leaf.function == 0xd && leaf.index == component && ((in_use & vector_components()) >> component & 1))
                copy(leaf.ebx, at, leaf.eax);
    }
}

bool DebugTarget::set_registers(std::uint32_t thread, const debug::Registers& values) {
    Place at;
    debug::Registers before;
    if (!place_of(thread, at) || !registers(thread, before) || values.vector.size() != before.vector.size())
        return false;
    abi::ThreadRegisters general = values.general;
    general.rflags = (general.rflags & kFlagsOfProgram) | kFlagsSet;
    // A thread may have been stopped in a stub, which must go on there unless the debugger moves it.
    if (general.rip == before.general.rip)
        if (const auto own = m_.space_.load<abi::ThreadRegisters>(GuestVirt(at.registers)))
            general.rip = own->rip;
    if (general.rip >= layout::kUserMax && general.rip != before.general.rip)
        return false;
    // XRSTOR faults on reserved bits, which no debugger has a use for.
    constexpr std::size_t kMxcsrAt = 24;
    constexpr std::uint32_t kMxcsrBits = 0xffff;
    std::vector<std::byte> shown = values.vector, own(m_.env_->cpu.xsave_bytes);
    std::uint32_t mxcsr;
    std::memcpy(&mxcsr, shown.data() + kMxcsrAt, sizeof(mxcsr));
    mxcsr &= kMxcsrBits;
    std::memcpy(shown.data() + kMxcsrAt, &mxcsr, sizeof(mxcsr));
    if (const std::uint64_t components = vector_components()) {
        std::uint64_t in_use;
        std::memcpy(&in_use, shown.data() + debug::kInUseAt, sizeof(in_use));
        in_use &= components;
        std::memcpy(shown.data() + debug::kInUseAt, &in_use, sizeof(in_use));
    }
    if (!m_.space_.read(GuestVirt(at.vector), own))
        return false;
    copy_vector(own, shown, true);
    return m_.space_.store(GuestVirt(at.registers), general) &&
           m_.space_.store(GuestVirt(at.fs_base), values.fs_base) &&
           m_.space_.store(GuestVirt(at.gs_base), values.gs_base) && m_.space_.write(GuestVirt(at.vector), own);
}

std::uint64_t DebugTarget::vector_components() const { return m_.env_->cpu.xcr0; }

// As the guest kernel's program_rip(): for a RIP in a stub, the matching address in the program's code.
std::uint64_t DebugTarget::program_rip(std::uint64_t rip) {
    const auto region = m_.space_.regions().upper_bound(rip);
    if (region == m_.space_.regions().begin() || std::prev(region)->second.name != AddressSpace::kStubsName)
        return rip;
    const std::uint64_t stub = rip & ~std::uint64_t{abi::kStubBytes - 1};
    const auto moved = m_.space_.load<std::uint8_t>(GuestVirt(stub + abi::kStubBytes - 1));
    const auto distance = moved ? m_.space_.load<std::int32_t>(GuestVirt(stub + *moved + 3)) : std::nullopt;
    if (!distance || *moved > abi::kStubBytes)
        return rip;
    const std::uint64_t system_call = stub + *moved + 7 + static_cast<std::uint64_t>(std::int64_t{*distance}) - 2;
    return system_call - *moved + std::min<std::uint64_t>(rip - stub, *moved);
}

bool DebugTarget::read(std::uint64_t at, std::span<std::byte> to) { return m_.space_.read(GuestVirt(at), to); }

bool DebugTarget::write(std::uint64_t at, std::span<const std::byte> from) {
    return at < layout::kUserMax && from.size() < layout::kUserMax - at && m_.space_.poke(GuestVirt(at), from);
}

// Of a region that is mapped from a file. The program headers, which the first region of an ELF file begins with, tell
// which parts the program may have changed, even if they are read-only by now (RELRO). They also tell where in the file
// a region of an image is, which has forgotten it.
debug::MemoryRange DebugTarget::file_range(std::uint64_t begin, const Region& region, std::uint64_t first) {
    constexpr unsigned kMaxParts = 64;
    debug::MemoryRange range{begin, region.end, region.prot, region.name, region.file_offset, false};
    range.as_file = !(region.prot & PROT_WRITE);
    if (!region.file)
        range.offset = begin - first;
    const auto head = m_.space_.load<Elf64_Ehdr>(GuestVirt(first));
    if (!head || std::memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 || head->e_phentsize != sizeof(Elf64_Phdr))
        return range;
    std::optional<std::uint64_t> bias;
    for (unsigned i = 0; i < std::min<unsigned>(head->e_phnum, kMaxParts); ++i) {
        const auto part = m_.space_.load<Elf64_Phdr>(GuestVirt(first + head->e_phoff + i * sizeof(Elf64_Phdr)));
        if (!part || part->p_type != PT_LOAD)
            continue;
        if (!bias)
            bias = first - page_down(part->p_vaddr);
        const std::uint64_t from = *bias + page_down(part->p_vaddr);
        if (begin < from || begin >= *bias + part->p_vaddr + part->p_filesz)
            continue;
        if (!region.file)
            range.offset = page_down(part->p_offset) + (begin - from);
        range.as_file = range.as_file && !(part->p_flags & PF_W);
    }
    return range;
}

std::vector<debug::MemoryRange> DebugTarget::ranges() {
    std::vector<debug::MemoryRange> out;
    std::unordered_map<std::string_view, std::uint64_t> firsts; // where the first region of each file begins
    for (const auto& [begin, region] : m_.space_.regions()) {
        firsts.emplace(region.name, begin);
        if ((region.flags & kRegionSupervisor) || (begin >= layout::kUserMax && region.name != kVdsoName) ||
            region.name == AddressSpace::kStubsName)
            continue;
        out.push_back(region.name.starts_with('/') ? file_range(begin, region, firsts[region.name])
                                                   : debug::MemoryRange{begin, region.end, region.prot, {}, 0, false});
    }
    return out;
}

void DebugTarget::for_each_page(std::uint64_t begin, std::uint64_t end, const std::function<void(std::uint64_t)>& fn) {
    std::vector<std::uint64_t> pages; // fn may change page tables, by populating
    m_.space_.tables().update(GuestVirt(begin), GuestVirt(end), [&](GuestVirt page, std::uint64_t entry) {
        pages.push_back(page.value);
        return entry;
    });
    for (const std::uint64_t page : pages)
        fn(page);
}

std::uint32_t DebugTarget::process() const { return m_.shared_->pid; }

// After the stack's argc, arguments and environment (System V ABI, 3.4.1).
std::vector<std::byte> DebugTarget::auxiliary_vector() {
    constexpr unsigned kMaxWords = 1 << 20, kMaxEntries = 64;
    std::vector<std::byte> out;
    std::uint64_t at = m_.shared_->boot_stack;
    const std::uint64_t count = m_.space_.load<std::uint64_t>(GuestVirt(at)).value_or(0);
    if (count > kMaxWords)
        return out;
    at += 8 * (count + 2);
    for (unsigned i = 0; i < kMaxWords; ++i, at += 8) {
        const auto word = m_.space_.load<std::uint64_t>(GuestVirt(at));
        if (!word)
            return out;
        if (*word == 0)
            break;
    }
    at += 8;
    for (unsigned i = 0; i < kMaxEntries; ++i, at += sizeof(Elf64_auxv_t)) {
        const auto entry = m_.space_.load<Elf64_auxv_t>(GuestVirt(at));
        if (!entry)
            return out;
        const auto bytes = std::as_bytes(std::span(&*entry, 1));
        out.insert(out.end(), bytes.begin(), bytes.end());
        if (entry->a_type == AT_NULL)
            break;
    }
    return out;
}

std::string DebugTarget::program() {
    const std::vector<std::byte> bytes = auxiliary_vector();
    for (std::size_t at = 0; at + sizeof(Elf64_auxv_t) <= bytes.size(); at += sizeof(Elf64_auxv_t)) {
        Elf64_auxv_t entry;
        std::memcpy(&entry, bytes.data() + at, sizeof(entry));
        if (entry.a_type != AT_PHDR)
            continue;
        const auto region = m_.space_.regions().upper_bound(entry.a_un.a_val);
        if (region != m_.space_.regions().begin() && std::prev(region)->second.name.starts_with('/'))
            return std::prev(region)->second.name;
    }
    return m_.env_->policy->facts().program;
}

std::string DebugTarget::arguments() const {
    std::string out;
    for (const std::string& word : m_.env_->policy->facts().arguments)
        out += (out.empty() ? "" : " ") + word;
    return out;
}

} // namespace tinykvm
