// Guest memory without a vCPU: VMs whose slots nobody runs in. Also for tests/fuzz: no Catch2 here.
#pragma once
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <optional>

#include "tinykvm/abi/layout.hpp"
#include "tinykvm/kvm/kvm.hpp"
#include "tinykvm/memory/address_space.hpp"
#include "tinykvm/memory/dirty_pages.hpp"

namespace tinykvm::test {

inline constexpr std::uint64_t kMiB = 1 << 20;
inline constexpr std::uint32_t kRw = PROT_READ | PROT_WRITE;
inline constexpr std::uint32_t kAnon = MAP_PRIVATE | MAP_ANONYMOUS;

// Throws with the reason when there is no KVM.
inline const kvm::Kvm& kvm_device() {
    static const kvm::Kvm device = kvm::Kvm::open();
    return device;
}

// An address space that grows; clone_of() makes copies of what it became.
struct BootWorld {
    kvm::Vm vm;
    GuestRam ram;
    AddressSpace space;
    explicit BootWorld(std::uint64_t memory = 64 * kMiB, std::uint64_t virtual_limit = 1 << 30)
        : vm(kvm_device().create_vm()), ram(GuestRam::boot(vm, memory)), space(ram, virtual_limit) {}

    struct Snapshot {
        std::shared_ptr<Image> image;
        std::shared_ptr<const AddressSpace::Regions> regions;
        GuestPhys root;
        std::uint64_t brk_begin, brk_end;
    };
    // As Machine::into_image().
    Snapshot freeze() {
        space.populate_files();
        auto regions = std::make_shared<AddressSpace::Regions>(space.regions());
        for (auto& [begin, region] : *regions) {
            region.file = nullptr;
            region.file_offset = 0;
        }
        Snapshot s{nullptr, regions, space.tables().root(), space.brk_begin(), space.brk_end()};
        s.image = std::move(ram).into_image();
        return s;
    }
};

struct CloneWorld {
    kvm::Vm vm;
    GuestRam ram;
    AddressSpace space;
    std::shared_ptr<Image> image;
    explicit CloneWorld(const BootWorld::Snapshot& s, std::uint64_t headroom = 16 * kMiB,
                        std::uint64_t virtual_limit = 1 << 30)
        : vm(kvm_device().create_vm()),
          ram(GuestRam::clone(vm, s.image, std::uint64_t{s.image->frames()} * kPageSize + headroom)),
          space(ram, s.root, s.regions, s.brk_begin, s.brk_end, virtual_limit), image(s.image) {}

    // As the working-set reset of a machine.
    void reset() {
        space.reset();
        for (const Frame frame : private_pages(ram.host(GuestPhys(0)), ram.image_frames()))
            std::memcpy(ram.host(frame_address(frame)), image->data() + frame_address(frame).value, kPageSize);
        ram.drop_headroom();
    }
    // The first frame that is not the image's, or nullopt.
    std::optional<Frame> difference() const {
        for (Frame frame = 0; frame < ram.image_frames(); ++frame)
            if (std::memcmp(ram.host(frame_address(frame)), image->data() + frame_address(frame).value, kPageSize) != 0)
                return frame;
        return std::nullopt;
    }
};

// True when the regions are sorted, apart from each other, page-aligned, and no two neighbours could be one.
inline bool canonical(const AddressSpace& space) {
    std::uint64_t last = 0;
    const Region* before = nullptr;
    std::uint64_t before_begin = 0;
    for (const auto& [begin, region] : space.regions()) {
        if (begin < last || region.end <= begin || ((begin | region.end) & (kPageSize - 1)) != 0)
            return false;
        if (before && before->end == begin && before->prot == region.prot && before->flags == region.flags &&
            before->file == region.file && before->name == region.name &&
            (!region.file || before->file_offset + (begin - before_begin) == region.file_offset))
            return false;
        last = region.end;
        before = &region;
        before_begin = begin;
    }
    return true;
}

// Frames that page tables and mapped pages hold: all that may be in use in a boot memory.
inline std::uint64_t reachable_frames(AddressSpace& space) {
    std::uint64_t count = 0;
    space.tables().for_each_table([&](Frame) { ++count; });
    space.tables().update(GuestVirt(0), GuestVirt(std::uint64_t{1} << 47), [&](GuestVirt, std::uint64_t entry) {
        ++count;
        return entry;
    });
    return count;
}

} // namespace tinykvm::test
