// Reset: puts a clone back to its image, bit by bit, at a cost that follows what was dirtied.
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstring>

#include <fmt/format.h>

#include "tinykvm/base/error.hpp"
#include "tinykvm/kvm/cpu_tables.hpp"
#include "tinykvm/machine/machine.hpp"
#include "tinykvm/memory/dirty_pages.hpp"
#include "tinykvm/memory/layout.hpp"

namespace tinykvm {
namespace {

long minor_faults() {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt;
}

} // namespace

ResetStats Machine::reset() {
    ResetStats stats;
    space_.reset();
    // A page that this clone wrote to for the first time cost a minor fault; without one the set is what it was.
    const long faults = minor_faults();
    if (faults != minor_faults_seen_) {
        working_set_ = private_pages(ram_.host(GuestPhys(0)), ram_.image_frames());
        minor_faults_seen_ = faults;
    }
    const std::byte* pristine = image_->image->data();
    for (const Frame frame : working_set_)
        std::memcpy(ram_.host(frame_address(frame)), pristine + frame_address(frame).value, kPageSize);
    stats.pages_copied = working_set_.size();
    stats.pages_dropped = ram_.drop_growth();
    handles_.reset();
    listeners_ = image_->listeners;
    told_.clear();
    start_at(kernel_.wait_resume);
    // Segment registers, if the program loaded other selectors; FS and GS bases and the vector state are set by the
    // guest kernel before the program goes on.
    const kvm_sregs& now = vcpu_.special();
    if (now.ds.selector != kvm::kUserData || now.es.selector != kvm::kUserData || now.fs.selector != kvm::kUserData ||
        now.gs.selector != kvm::kUserData) {
        kvm_sregs fresh = kvm::user_special_registers(GuestVirt(layout::kCpuTables), space_.tables().root());
        fresh.apic_base = now.apic_base;
        vcpu_.special() = fresh;
        vcpu_.special_changed();
    }
    if (working_set_.size() * kPageSize > env_->limits.keep_memory) {
        // More than a machine may keep: the copies go back to the kernel, and the set is learned anew.
        if (::madvise(ram_.host(GuestPhys(0)), ram_.image()->bytes().size(), MADV_DONTNEED) < 0)
            throw_errno("madvise(MADV_DONTNEED) request machine");
        working_set_.clear();
        minor_faults_seen_ = -1;
    }
    return stats;
}

void Machine::forget_accessed() {
    for (const auto& [begin, region] : space_.regions())
        space_.tables().update(GuestVirt(begin), GuestVirt(region.end),
                               [](GuestVirt, std::uint64_t entry) { return entry & ~pte::kAccessed; });
}

std::vector<Frame> Machine::accessed_frames() {
    std::vector<Frame> tables, kernel, program;
    space_.tables().for_each_table([&](Frame frame) { tables.push_back(frame); });
    for (const auto& [begin, region] : space_.regions())
        space_.tables().update(GuestVirt(begin), GuestVirt(region.end), [&](GuestVirt page, std::uint64_t entry) {
            if (page.value >= layout::kUserMax)
                kernel.push_back(pte::frame(entry));
            else if (entry & pte::kAccessed)
                program.push_back(pte::frame(entry));
            return entry;
        });
    tables.insert(tables.end(), kernel.begin(), kernel.end());
    tables.insert(tables.end(), program.begin(), program.end());
    std::erase_if(tables, [&](Frame frame) { return frame >= ram_.image_frames(); });
    return tables;
}

void Machine::prepare() { make_unique(); }

std::string Machine::compare_with_image() {
    const std::byte* pristine = image_->image->data();
    for (Frame frame = 0; frame < ram_.image_frames(); ++frame) {
        if (!image_->image->loaded(frame))
            continue;
        const std::byte* own = ram_.host(frame_address(frame));
        const std::byte* want = pristine + frame_address(frame).value;
        if (std::memcmp(own, want, kPageSize) == 0)
            continue;
        std::size_t at = 0;
        while (own[at] == want[at])
            ++at;
        std::string where;
        for (const auto& [begin, region] : space_.regions())
            space_.tables().update(GuestVirt(begin), GuestVirt(region.end), [&](GuestVirt page, std::uint64_t entry) {
                if (where.empty() && pte::frame(entry) == frame)
                    where = fmt::format(" (guest address {:#x} {})", page.value + at, region.name);
                return entry;
            });
        return fmt::format("frame {} byte {}: {:#04x} instead of {:#04x}{}", frame, at, std::to_integer<unsigned>(own[at]),
                           std::to_integer<unsigned>(want[at]), where);
    }
    if (ram_.high() != ram_.image_frames())
        return fmt::format("{} frames were added and not given back", ram_.high() - ram_.image_frames());
    if (handles_.changed() != 0)
        return fmt::format("{} host handles differ", handles_.changed());
    if (space_.regions().size() != image_->regions->size())
        return "the address space differs";
    return "";
}

} // namespace tinykvm
