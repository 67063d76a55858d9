#include "tinykvm/machine/privileged.hpp"

#include <elf.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "tinykvm/abi/layout.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/must_hold.hpp"
#include "tinykvm/guest/embed.hpp"
#include "tinykvm/kvm/cpu_tables.hpp"

namespace tinykvm {
namespace {

[[noreturn]] void refuse(const char* what) {
    throw UserError(ExitCode::bad_snapshot, std::string("snapshot: ") + what + "; build it again");
}

struct OwnKernel {
    abi::KernelHeader header{};
    std::vector<std::byte> supervisor; // whole pages
};

OwnKernel read_own_kernel() {
    OwnKernel own;
    const auto bytes = guest_kernel_image();
    Elf64_Ehdr elf;
    std::memcpy(&elf, bytes.data(), sizeof(elf));
    for (unsigned i = 0; i < elf.e_phnum; ++i) {
        Elf64_Phdr s;
        std::memcpy(&s, bytes.data() + elf.e_phoff + i * sizeof(s), sizeof(s));
        if (s.p_type == PT_LOAD && s.p_vaddr == layout::kKernelImage)
            std::memcpy(&own.header, bytes.data() + s.p_offset, sizeof(own.header));
        if (s.p_type == PT_LOAD && s.p_vaddr == own.header.supervisor_begin && s.p_vaddr != 0) {
            own.supervisor.resize(page_up(s.p_memsz));
            std::memcpy(own.supervisor.data(), bytes.data() + s.p_offset, s.p_filesz);
        }
    }
    must_hold(!own.supervisor.empty());
    return own;
}

const OwnKernel& own_kernel() {
    static const OwnKernel own = read_own_kernel();
    return own;
}

// gk_hardware_entry of guest/entry.S:
//   MOV [RIP + distance], RCX     to the slot of the program's RIP
//   LEA RCX, [RIP + distance]     second instruction of syscall_entry, whose first is the same MOV
//   SYSRET
constexpr std::uint8_t kEntryCode[] = {0x48, 0x89, 0x0d, 0, 0, 0, 0, 0x48, 0x8d, 0x0d, 0, 0, 0, 0, 0x48, 0x0f, 0x07};
constexpr std::uint64_t kSlotAt = 3, kAfterMov = 7, kTargetAt = 10, kAfterLea = 14;

void put_distance(std::vector<std::byte>& code, std::uint64_t at, std::uint64_t from, std::uint64_t to) {
    const auto distance = static_cast<std::int32_t>(static_cast<std::int64_t>(to - from)); // both in kKernelImageBytes
    std::memcpy(code.data() + at, &distance, sizeof(distance));
}

bool in_kernel(std::uint64_t at, std::uint64_t bytes) {
    return at >= layout::kKernelImage && bytes <= layout::kKernelImageBytes &&
           at - layout::kKernelImage <= layout::kKernelImageBytes - bytes;
}

// The leaf entry of an address in an image whose page tables have not been checked yet; null when there is none.
std::uint64_t* leaf_entry(Image& memory, GuestPhys root, std::uint64_t at) {
    std::uint64_t link = root.value;
    for (int shift = 39;; shift -= 9) {
        const std::uint64_t frame = (link & pte::kAddress) / kPageSize;
        if (frame >= memory.frames())
            return nullptr;
        memory.ensure(static_cast<Frame>(frame));
        auto* entries = reinterpret_cast<std::uint64_t*>(memory.data() + frame * kPageSize);
        std::uint64_t& entry = entries[(at >> shift) & 511];
        if (!pte::mapped(entry) || (shift > 12 && (entry & pte::kLarge)))
            return nullptr;
        if (shift == 12)
            return &entry;
        link = entry;
    }
}

} // namespace

std::vector<std::byte> cpu_tables(const abi::KernelHeader& kernel, bool pvm) {
    std::vector<std::byte> tables(kvm::kCpuTablesBytes);
    kvm::CpuTablesPlan plan;
    plan.base = GuestVirt(layout::kCpuTables);
    plan.stubs = kernel.exception_stubs;
    plan.stride = kernel.exception_stride;
    plan.ports[0] = abi::kPortHostCall;
    plan.ports[1] = abi::kPortWait;
    plan.always_switch_stacks = !pvm;
    kvm::build_cpu_tables(plan, tables);
    return tables;
}

std::vector<std::byte> supervisor_code(const abi::KernelHeader& kernel) {
    const OwnKernel& own = own_kernel();
    std::vector<std::byte> code = own.supervisor;
    const std::uint64_t entry = own.header.hardware_entry - own.header.supervisor_begin;
    must_hold(entry + sizeof(kEntryCode) <= code.size());
    std::memcpy(code.data() + entry, kEntryCode, sizeof(kEntryCode));
    put_distance(code, entry + kSlotAt, kernel.hardware_entry + kAfterMov, kernel.entry_rip);
    put_distance(code, entry + kTargetAt, kernel.hardware_entry + kAfterLea, kernel.syscall_entry + kAfterMov);
    return code;
}

PrivilegedPages::PrivilegedPages(const MachineImage& image, Image& memory)
    : image_(image), memory_(memory), taken_(memory.frames()) {
    const std::uint64_t* header = leaf_entry(memory, image.root, layout::kKernelImage);
    if (!header || pte::frame(*header) >= memory.frames())
        refuse("no guest kernel where one should be");
    memory.ensure(pte::frame(*header));
    std::memcpy(&kernel_, memory.data() + frame_address(pte::frame(*header)).value, sizeof(kernel_));
    const abi::KernelHeader& own = own_kernel().header;
    const std::uint64_t begin = kernel_.supervisor_begin, bytes = own_kernel().supervisor.size();
    if (kernel_.magic != abi::kKernelMagic || kernel_.version != abi::kVersion)
        refuse("no guest kernel where one should be");
    if (begin % kPageSize != 0 || !in_kernel(begin, bytes) || kernel_.supervisor_end != begin + bytes ||
        kernel_.hardware_entry - begin != own.hardware_entry - own.supervisor_begin ||
        kernel_.exception_stubs - begin != own.exception_stubs - own.supervisor_begin ||
        kernel_.exception_stride != own.exception_stride)
        refuse("its guest kernel has other code at CPL 0 than this kvmserver's");
    // hardware_entry writes to the slot with the rights of CPL 0, so the slot must be memory of the program.
    const std::uint64_t* slot = leaf_entry(memory, image.root, kernel_.entry_rip);
    constexpr std::uint64_t kProgram = pte::kUser | pte::kWrite | pte::kPresent;
    if (!in_kernel(kernel_.entry_rip, 8) || kernel_.entry_rip % kPageSize > kPageSize - 8 || !slot ||
        (*slot & kProgram) != kProgram || !in_kernel(kernel_.syscall_entry, kAfterMov + 1))
        refuse("its guest kernel has no sound entries");
    find(begin, begin + bytes);
    find(layout::kCpuTables, layout::kCpuTables + kvm::kCpuTablesBytes);
}

// The pages must fill a supervisor region of their own: neither the program nor the host on its behalf can access it.
void PrivilegedPages::find(std::uint64_t begin, std::uint64_t end) {
    const auto region = image_.regions->find(begin);
    const bool code = begin != layout::kCpuTables;
    const std::uint32_t prot = PROT_READ | (code ? PROT_EXEC : PROT_WRITE);
    if (region == image_.regions->end() || region->second.end != end || region->second.prot != prot ||
        region->second.flags != kRegionSupervisor || region->second.file)
        refuse("the CPL 0 pages of its guest kernel do not have a region of their own");
    for (std::uint64_t at = begin; at < end; at += kPageSize) {
        std::uint64_t* const entry = leaf_entry(memory_, image_.root, at);
        if (!entry || pte::frame(*entry) >= memory_.frames() || taken_[pte::frame(*entry)])
            refuse("pages of its guest kernel that run at CPL 0 are missing");
        taken_[pte::frame(*entry)] = true;
        pages_.push_back({at, entry, pte::frame(*entry)});
    }
}

void PrivilegedPages::check(std::uint64_t at, std::uint64_t entry) const {
    const bool taken = taken_[pte::frame(entry)];
    if ((entry & pte::kUser) && !taken) [[likely]]
        return;
    const auto page = std::ranges::find(pages_, at, &Page::at);
    if (page == pages_.end())
        refuse(taken ? "its program could reach what decides what runs at CPL 0"
                     : "it has pages for CPL 0 that are not the guest kernel's");
}

void PrivilegedPages::put(std::span<const std::byte> content, std::uint64_t begin, std::uint64_t flags) {
    for (const Page& page : pages_) {
        if (page.at - begin >= content.size())
            continue;
        memory_.ensure(page.frame);
        const auto own = content.subspan(page.at - begin, kPageSize);
        const std::span there(memory_.data() + frame_address(page.frame).value, kPageSize);
        if (!std::ranges::equal(own, there))
            memory_.replace(page.frame, own);
        *page.entry = frame_address(page.frame).value | flags | pte::kPresent | pte::kAccessed;
    }
}

void PrivilegedPages::put_own(bool pvm) {
    put(supervisor_code(kernel_), kernel_.supervisor_begin, 0);
    put(cpu_tables(kernel_, pvm), layout::kCpuTables, pte::kWrite | pte::kDirty | pte::kNoExecute);
}

} // namespace tinykvm
