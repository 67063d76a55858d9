// Reset: puts a clone back to its image, bit by bit, at a cost that follows what was dirtied.
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <iterator>

#include <fmt/format.h>

#include "tinykvm/abi/layout.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/zero.hpp"
#include "tinykvm/kvm/cpu_tables.hpp"
#include "tinykvm/machine/machine.hpp"
#include "tinykvm/memory/dirty_pages.hpp"

namespace tinykvm {
namespace {

long minor_faults() {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt + usage.ru_majflt; // a page that had been swapped out is a major one
}

// Page tables count as equal when they differ in accessed and dirty bits only, which the CPU sets as it walks them, or
// in a page of the image that has been loaded since: another clone made it present in the image, this one has a copy of
// the table; or where a link is back in the place of a large page (PageTables::use_table). Other clones make entries of
// the image present meanwhile.
bool same_table(const GuestRam& ram, const std::byte* own, std::byte* image) {
    constexpr std::uint64_t kMarks = pte::kAccessed | pte::kDirty, kLoaded = pte::kPresent | pte::kLazy;
    for (std::size_t at = 0; at < kPageSize; at += 8) {
        std::uint64_t x;
        std::memcpy(&x, own + at, 8);
        std::uint64_t y =
            std::atomic_ref(*reinterpret_cast<std::uint64_t*>(image + at)).load(std::memory_order_relaxed);
        if ((y & pte::kLarge) != 0 && (x & pte::kLarge) == 0)
            y = ram.link(y);
        const bool loaded = (x & pte::kLazy) != 0 && (y & pte::kPresent) != 0;
        if ((x ^ y) & ~(kMarks | (loaded ? kLoaded : 0)))
            return false;
    }
    return true;
}

// Collects the pages that were accessed, and what lies before them in the same block of eight: on a fault
// KVM's shadow paging maps such a block from its first page on, for as long as the pages are there (Linux
// arch/x86/kvm/mmu/paging_tmpl.h, pte_prefetch). A page more to load costs about a third of a fault.
class MappedAlong {
public:
    explicit MappedAlong(std::vector<Frame>& out) : out_(&out) {}
    ~MappedAlong() { end_block(); }

    void add(GuestVirt page, std::uint64_t entry) {
        const std::uint64_t number = page.value / kPageSize;
        if (number / kBlock != block_) {
            end_block();
            block_ = number / kBlock;
        }
        const Page found{pte::frame(entry), (entry & pte::kAccessed) != 0};
        if (found.accessed) {
            ++accessed_;
            upto_ = count_ + 1;
            whole_ = count_ == number % kBlock; // no hole before it
        }
        pages_[count_++] = found;
    }

private:
    static constexpr std::size_t kBlock = 8, kWorth = 3;
    struct Page {
        Frame frame;
        bool accessed;
    };
    void end_block() {
        const bool fill = whole_ && accessed_ > 1 && upto_ - accessed_ <= kWorth * (accessed_ - 1);
        for (std::size_t i = 0; i < upto_; ++i)
            if (fill || pages_[i].accessed)
                out_->push_back(pages_[i].frame);
        count_ = accessed_ = upto_ = 0;
        whole_ = false;
    }
    std::vector<Frame>* out_;
    std::uint64_t block_ = 0;
    std::array<Page, kBlock> pages_{};
    std::size_t count_ = 0, accessed_ = 0, upto_ = 0;
    bool whole_ = false;
};

} // namespace

// Looks which of the pages that were only read so far have been written to since the last reset, by the program or by
// the host for it, or have moved to other addresses: from now on they are copied back as the others are. The entries
// must still be as the invocation left them.
void Machine::find_written() {
    const auto written = [&](Frame frame) {
        if (frame < clean_copies_.size() && clean_copies_[frame]) {
            clean_copies_[frame] = false;
            minor_faults_seen_ = -1;
        }
    };
    std::erase_if(unwritten_, [&](const UnwrittenPage& page) {
        std::uint64_t entry;
        std::memcpy(&entry, ram_.host(page.entry_at), sizeof(entry));
        if (((entry ^ page.entry) & ~pte::kAccessed) == 0)
            return false;
        written(page.frame);
        return true;
    });
    for (const Frame frame : space_.take_host_dirty())
        written(frame);
}

// Page tables need no copying: what the host changes there its journal undoes, and what else is written are accessed
// and dirty bits. The program cannot reach them (make_lazy).
void Machine::erase_tables(std::vector<Frame>& frames) const {
    std::vector<bool> table(ram_.image_frames());
    space_.tables().for_each_table([&](Frame frame) {
        if (frame < table.size())
            table[frame] = true;
    });
    std::erase_if(frames, [&](Frame frame) { return table[frame]; });
}

// One invocation that wrote much must not make all that follow dear. Now and then what the invocation left is compared
// with the image, and copies that were as in it twice in a row go back to the kernel: a few first, for a page may be
// written to and put back by the program itself each time (reference counts), and then costs a fault anew; more once
// such do not come back.
void Machine::shrink_working_set() {
    constexpr unsigned kEvery = 64;
    constexpr std::size_t kWorthIt = 256; // pages: below, a reset is nothing beside an exit
    constexpr std::size_t kFew = 64;
    if (++resets_since_look_ < kEvery || working_set_.size() < kWorthIt)
        return;
    resets_since_look_ = 0;
    ++looks_;
    came_back_.resize(ram_.image_frames());
    std::size_t back = 0;
    for (const Frame frame : given_back_)
        if (std::binary_search(working_set_.begin(), working_set_.end(), frame)) {
            came_back_[frame] = static_cast<std::uint8_t>(std::min(came_back_[frame] + 1, 15));
            ++back;
        }
    give_back_ = given_back_.empty() || back * 4 > given_back_.size() ? kFew : give_back_ * 2;
    given_back_.clear();

    const std::byte* pristine = image_->image->data();
    std::vector<Frame> unchanged;
    for (const Frame frame : working_set_)
        if (std::memcmp(ram_.host(frame_address(frame)), pristine + frame_address(frame).value, kPageSize) == 0)
            unchanged.push_back(frame);
    std::set_intersection(unchanged.begin(), unchanged.end(), unchanged_.begin(), unchanged_.end(),
                          std::back_inserter(given_back_));
    unchanged_ = std::move(unchanged);
    // What came back n times is tried each 4^n looks.
    std::erase_if(given_back_, [&](Frame frame) { return looks_ % (1ull << (2 * came_back_[frame])) != 0; });
    given_back_.resize(std::min(given_back_.size(), give_back_));
    std::vector<FrameRun> runs;
    for (const Frame frame : given_back_)
        append_frame(runs, frame);
    for (const FrameRun& run : runs)
        if (::madvise(ram_.host(frame_address(run.first)), std::uint64_t{run.count} * kPageSize, MADV_DONTNEED) < 0)
            throw_errno("madvise(MADV_DONTNEED) unused copies");
    if (!runs.empty())
        minor_faults_seen_ = -1; // the set is learned anew
}

// Working set: the kernel tells which pages of the image this clone has a copy of. A page written for the first time
// cost a minor fault; without one the set is what it was.
std::uint64_t Machine::restore_working_set() {
    shrink_working_set();
    for (const Frame frame : space_.take_made_writable())
        if (frame < clean_copies_.size() && clean_copies_[frame]) {
            clean_copies_[frame] = false;
            minor_faults_seen_ = -1;
        }
    const long faults = minor_faults();
    if (faults != minor_faults_seen_) {
        working_set_ = private_pages(ram_.host(GuestPhys(0)), ram_.image_frames());
        if (!clean_copies_.empty())
            std::erase_if(working_set_, [&](Frame frame) { return clean_copies_[frame]; });
        erase_tables(working_set_);
        minor_faults_seen_ = faults;
    }
    restore_frames(working_set_);
    own_count_ = working_set_.size();
    give_back_clean_copies();
    return working_set_.size();
}

// Copies that only make the first invocations faster are memory that nobody else can use. A machine that goes on
// serving gets the image's own pages instead, a few each time: each costs a fault once more.
void Machine::give_back_clean_copies() {
    constexpr unsigned kStart = 64; // invocations
    constexpr std::size_t kEachTime = 16;
    if (clean_copies_.empty() || ++resets_with_clean_copies_ <= kStart)
        return;
    std::vector<FrameRun> runs;
    Frame& next = next_clean_copy_;
    for (std::size_t count = 0; next < clean_copies_.size() && count < kEachTime; ++next)
        if (clean_copies_[next]) {
            clean_copies_[next] = false;
            append_frame(runs, next);
            ++count;
        }
    for (const FrameRun& run : runs)
        if (::madvise(ram_.host(frame_address(run.first)), std::uint64_t{run.count} * kPageSize, MADV_DONTNEED) < 0)
            throw_errno("madvise(MADV_DONTNEED) clean copies");
    if (next == clean_copies_.size()) {
        clean_copies_.clear();
        unwritten_.clear();
    }
}

// Dirty bits: what the CPU marked in the page tables, and what the host wrote itself.
std::uint64_t Machine::restore_dirty(std::vector<Frame> dirty) {
    const std::vector<Frame> by_host = space_.take_host_dirty();
    dirty.insert(dirty.end(), by_host.begin(), by_host.end());
    dirty.insert(dirty.end(), host_pages_.begin(), host_pages_.end());
    std::erase_if(dirty, [&](Frame frame) { return frame >= ram_.image_frames(); });
    std::sort(dirty.begin(), dirty.end());
    dirty.erase(std::unique(dirty.begin(), dirty.end()), dirty.end());
    restore_frames(dirty);
    own_.resize(ram_.image_frames());
    for (const Frame frame : dirty)
        if (!own_[frame]) {
            own_[frame] = true;
            ++own_count_;
        }
    // The TLB may hold translations that say "dirty already". A changed CR3 (its ignored PWT bit) makes KVM flush it.
    vcpu_.special().cr3 ^= 8;
    vcpu_.special_changed();
    return dirty.size();
}

void Machine::restore_frames(const std::vector<Frame>& frames) {
    const std::byte* pristine = image_->image->data();
    for (const Frame frame : frames)
        std::memcpy(ram_.host(frame_address(frame)), pristine + frame_address(frame).value, kPageSize);
}

bool Machine::settle() {
    if (in_door_)
        return true;
    start_at(kernel_.wait_resume);
    if (!vcpu_.settle())
        return false;
    const std::uint64_t cr3 = vcpu_.special().cr3; // restore_dirty() goes by it
    set_up_vcpu();
    vcpu_.special().cr3 = cr3;
    vcpu_.special_changed();
    in_door_ = true;
    return true;
}

ResetStats Machine::reset() {
    if (!settle())
        throw HostError(EBUSY, "reset of a vCPU that has an instruction to end");
    ResetStats stats;
    std::vector<Frame> dirty;
    if (strategy_ == ResetStrategy::dirty_bits)
        space_.tables().take_dirty([&](Frame frame) { dirty.push_back(frame); });
    else
        find_written();
    space_.reset();
    stats.pages_copied =
        strategy_ == ResetStrategy::dirty_bits ? restore_dirty(std::move(dirty)) : restore_working_set();
    stats.pages_dropped = ram_.drop_headroom();
    handles_.reset();
    listeners_ = image_->listeners;
    start_at(kernel_.wait_resume);
    begins_ = true;
    if (!env_->options.keep_working_memory ||
        (own_count_ + ram_.kept_headroom()) * kPageSize > env_->limits.keep_memory) {
        // More than a machine may keep: the copies go back to the kernel, and the set is learned anew.
        if (::madvise(ram_.host(GuestPhys(0)), ram_.image()->bytes().size(), MADV_DONTNEED) < 0)
            throw_errno("madvise(MADV_DONTNEED) request machine");
        ram_.drop_kept_headroom();
        working_set_.clear();
        unchanged_.clear();
        given_back_.clear();
        own_.clear();
        own_count_ = 0;
        clean_copies_.clear();
        unwritten_.clear();
        minor_faults_seen_ = -1;
    }
    return stats;
}

std::vector<FrameRun> Machine::written_frames() const {
    std::vector<FrameRun> runs;
    std::vector<Frame> frames = private_pages(ram_.host(GuestPhys(0)), ram_.image_frames());
    erase_tables(frames);
    for (const Frame frame : frames)
        append_frame(runs, frame);
    return runs;
}

void Machine::forget_accessed() {
    for (const auto& [begin, region] : space_.regions())
        space_.tables().update(GuestVirt(begin), GuestVirt(region.end),
                               [](GuestVirt, std::uint64_t entry) { return entry & ~pte::kAccessed; });
}

Machine::AccessedFrames Machine::accessed_frames() {
    AccessedFrames found;
    std::vector<Frame> writable;
    space_.tables().for_each_table([&](Frame frame) { found.machine.push_back(frame); });
    for (const auto& [begin, region] : space_.regions()) {
        MappedAlong along(region.prot & PROT_WRITE ? writable : found.program);
        space_.tables().update(GuestVirt(begin), GuestVirt(region.end), [&](GuestVirt page, std::uint64_t entry) {
            if (page.value >= layout::kUserMax)
                found.machine.push_back(pte::frame(entry));
            else
                along.add(page, entry);
            return entry;
        });
    }
    writable.insert(writable.end(), entropy_.frames().begin(), entropy_.frames().end()); // by the host, each time
    found.program.insert(found.program.end(), writable.begin(), writable.end());
    for (auto* frames : {&found.machine, &found.program})
        std::erase_if(*frames, [&](Frame frame) { return frame >= ram_.image_frames(); });
    return found;
}

void Machine::prepare() { refresh_identity(); }

std::string Machine::compare_with_image() {
    std::byte* pristine = image_->image->data();
    std::vector<bool> is_table(ram_.image_frames());
    space_.tables().for_each_table([&](Frame frame) {
        if (frame < is_table.size())
            is_table[frame] = true;
    });
    for (Frame frame = 0; frame < ram_.image_frames(); ++frame) {
        if (!image_->image->loaded(frame))
            continue;
        const std::byte* own = ram_.host(frame_address(frame));
        std::byte* want = pristine + frame_address(frame).value;
        if (is_table[frame] ? same_table(ram_, own, want) : std::memcmp(own, want, kPageSize) == 0)
            continue;
        std::size_t at = 0;
        while (at < kPageSize - 1 && own[at] == want[at])
            ++at;
        std::string where;
        for (const auto& [begin, region] : space_.regions())
            space_.tables().update(GuestVirt(begin), GuestVirt(region.end),
                                   [&, &name = region.name](GuestVirt page, std::uint64_t entry) {
                                       if (where.empty() && pte::frame(entry) == frame)
                                           where = fmt::format(" (guest address {:#x} {})", page.value + at, name);
                                       return entry;
                                   });
        return fmt::format("frame {} byte {}: {:#04x} instead of {:#04x}{}", frame, at,
                           std::to_integer<unsigned>(own[at]), std::to_integer<unsigned>(want[at]), where);
    }
    if (ram_.high() != ram_.image_frames())
        return fmt::format("{} frames were added and not given back", ram_.high() - ram_.image_frames());
    for (Frame frame = ram_.high(); frame < ram_.image_frames() + ram_.kept_headroom(); ++frame)
        if (!is_zero(ram_.frame_bytes(frame)))
            return fmt::format("frame {}, which is kept for what comes, is not zero", frame);
    if (handles_.changed() != 0)
        return fmt::format("{} host handles differ", handles_.changed());
    auto want = image_->regions->begin();
    for (auto here = space_.regions().begin(); here != space_.regions().end() || want != image_->regions->end();
         ++here, ++want) {
        if (here == space_.regions().end() || want == image_->regions->end() || here->first != want->first ||
            here->second.end != want->second.end || here->second.prot != want->second.prot ||
            here->second.flags != want->second.flags)
            return fmt::format("the address space differs at {:#x}",
                               here == space_.regions().end() ? want->first : here->first);
    }
    if (space_.brk_end() != image_->brk_end)
        return fmt::format("the break is {:#x} instead of {:#x}", space_.brk_end(), image_->brk_end);
    return "";
}

} // namespace tinykvm
