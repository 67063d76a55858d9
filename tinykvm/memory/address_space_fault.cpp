// Populates regions, on page faults of the guest and on accesses of the host.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/must_hold.hpp"
#include "tinykvm/memory/address_space.hpp"

namespace tinykvm {
namespace {

// Fault-around: an exit costs as much as copying a hundred pages, so a fault populates the aligned block around it.
// Anonymous frames cost nothing until they are touched. File pages cost a copy.
constexpr std::uint64_t kAnonymousBlock = 128 << 10;
constexpr std::uint64_t kFileBlock = 64 << 10;
// Neighbouring lazy pages come from one chunk of the snapshot, so they are made present together.
constexpr std::uint64_t kLazyBlock = 64 << 10;
// populate_nearby() fills whole regions up to this size. In larger ones it fills blocks of a quarter of it: those with
// pages in use, and one before and after each.
constexpr std::uint64_t kNearby = 1 << 20;

bool allowed(std::uint32_t prot, FaultAccess access) {
    switch (access) {
    case FaultAccess::read: return prot != 0; // x86 has no write-only or execute-only pages
    case FaultAccess::write: return (prot & PROT_WRITE) != 0;
    case FaultAccess::execute: return (prot & PROT_EXEC) != 0;
    }
    return false;
}

} // namespace

FaultOutcome AddressSpace::fault(GuestVirt at, FaultAccess access) {
    auto region = region_of(at.value);
    if (region == regions_.end()) {
        if (!grow_down(at.value))
            return FaultOutcome::not_mapped;
        region = region_of(at.value);
    }
    if ((region->second.flags & kRegionSupervisor) || !allowed(region->second.prot, access))
        return FaultOutcome::not_allowed;
    const GuestVirt page(page_down(at.value));
    const std::uint64_t entry = tables_.get(page);
    if (entry & pte::kPresent)
        return FaultOutcome::done; // the CPU used a stale translation
    if (entry & pte::kLazy) {
        make_present(page, entry);
        return FaultOutcome::done;
    }
    return populate_around(region, page.value, region->second.file ? kFileBlock : kAnonymousBlock);
}

void AddressSpace::make_present(GuestVirt at, std::uint64_t entry) {
    const Image* image = ram_->image();
    if (image && pte::frame(entry) < image->frames())
        image->ensure(pte::frame(entry));
    tables_.set_present(at);
    if (!image)
        return;
    // Make neighbours present whose bytes have been loaded with it.
    const auto region = region_of(at.value);
    const std::uint64_t block = at.value & ~(kLazyBlock - 1);
    const std::uint64_t begin = std::max(block, region->first);
    const std::uint64_t end = std::min(block + kLazyBlock, region->second.end);
    std::vector<GuestVirt> ready;
    tables_.update(GuestVirt(begin), GuestVirt(end), [&](GuestVirt page, std::uint64_t neighbour) {
        if (!(neighbour & pte::kPresent) && pte::frame(neighbour) < image->frames() &&
            image->loaded(pte::frame(neighbour)))
            ready.push_back(page);
        return neighbour;
    });
    for (const GuestVirt page : ready)
        tables_.set_present(page);
}

FaultOutcome AddressSpace::populate_around(Regions::iterator region, std::uint64_t at, std::uint64_t block_bytes) {
    if (live(region->second))
        return populate_shared(region, at);
    const std::uint64_t block = at & ~(block_bytes - 1);
    std::uint64_t begin = at, end = at + kPageSize;
    const std::uint64_t lowest = std::max(block, region->first);
    const std::uint64_t highest = std::min(block + block_bytes, region->second.end);
    while (begin > lowest && !pte::mapped(tables_.get(GuestVirt(begin - kPageSize))))
        begin -= kPageSize;
    while (end < highest && !pte::mapped(tables_.get(GuestVirt(end))))
        end += kPageSize;

    if (region->second.file) {
        // Pages entirely beyond the end of the file raise SIGBUS, so fault-around must not populate them.
        struct stat info {};
        if (::fstat(region->second.file->fd.get(), &info) < 0)
            return FaultOutcome::past_file;
        const auto size = static_cast<std::uint64_t>(info.st_size);
        const std::uint64_t offset = region->second.file_offset;
        const std::uint64_t limit = size <= offset ? region->first : region->first + page_up(size - offset);
        if (at >= limit)
            return FaultOutcome::past_file;
        end = std::min(end, limit);
    }

    auto count = static_cast<std::uint32_t>((end - begin) / kPageSize);
    auto first = ram_->allocate(count);
    if (!first) {
        begin = at;
        end = at + kPageSize;
        count = 1;
        first = ram_->allocate(1);
    }
    if (!first) {
        out_of_memory_ = true;
        return FaultOutcome::no_memory;
    }
    if (region->second.file && !fill_from_file(region->second, region->first, begin, *first, count)) {
        ram_->release(*first, count);
        return FaultOutcome::past_file;
    }
    const std::uint64_t flags = leaf_flags(region->second);
    for (std::uint32_t i = 0; i < count; ++i) {
        std::uint64_t entry = frame_address(*first + i).value | flags;
        if (!(flags & pte::kPresent))
            entry |= pte::kLazy;
        if (!tables_.set(GuestVirt(begin + i * kPageSize), entry)) {
            ram_->release(*first + i, count - i);
            out_of_memory_ = true;
            return FaultOutcome::no_memory;
        }
    }
    return FaultOutcome::done;
}

bool AddressSpace::fill_from_file(const Region& region, std::uint64_t region_begin, std::uint64_t at, Frame first,
                                  std::uint32_t count) {
    std::byte* to = ram_->host(frame_address(first));
    std::uint64_t left = std::uint64_t{count} * kPageSize;
    std::uint64_t offset = region.file_offset + (at - region_begin);
    // Reading through the mapping costs a fault for each page: 64 KiB take 1.6 times as long.
    constexpr std::uint64_t kWorthSending = 4 * kPageSize;
    if (left >= kWorthSending) {
        const std::uint64_t sent = ram_->fill_from_file(first, region.file->fd.get(), offset, left);
        to += sent;
        left -= sent;
        offset += sent;
    }
    while (left > 0) {
        const ssize_t n = ::pread(region.file->fd.get(), to, left, static_cast<off_t>(offset));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        if (n == 0)
            break; // the rest of the last page is zero
        to += n;
        left -= static_cast<std::uint64_t>(n);
        offset += static_cast<std::uint64_t>(n);
    }
    if (region.patches)
        region.patches->apply({ram_->host(frame_address(first)), std::uint64_t{count} * kPageSize}, at);
    if (track_host_writes_)
        for (std::uint32_t i = 0; i < count; ++i)
            note_frame(host_dirty_, first + i);
    return true;
}

bool AddressSpace::append_runs(GuestVirt at, std::uint64_t length, Access access, std::vector<iovec>& out) {
    if (length == 0)
        return true;
    if (at.value + length < at.value)
        return false;
    const std::uint64_t end = at.value + length;
    std::uint64_t here = at.value;
    auto region = region_of(here);
    while (here < end) {
        if (region != regions_.end() && here >= region->second.end) {
            const std::uint64_t edge = region->second.end;
            ++region;
            if (region != regions_.end() && region->first != edge)
                return false;
        }
        if (region == regions_.end() || here < region->first)
            return false;
        const Region& r = region->second;
        if ((r.flags & kRegionSupervisor) ||
            !allowed(r.prot, access == Access::write ? FaultAccess::write : FaultAccess::read))
            return false;
        const GuestVirt page(page_down(here));
        std::uint64_t entry = tables_.get(page);
        if (!(entry & pte::kPresent)) {
            if (fault(GuestVirt(here), access == Access::write ? FaultAccess::write : FaultAccess::read) !=
                FaultOutcome::done)
                return false;
            entry = tables_.get(page);
        }
        const Frame frame = pte::frame(entry);
        if (!ram_->valid(frame) || (ram_->is_window(frame) && !live(r)))
            return false;
        if (access == Access::write && track_host_writes_)
            note_frame(host_dirty_, frame);
        const std::uint64_t inside = here - page.value;
        const std::uint64_t n = std::min(kPageSize - inside, end - here);
        std::byte* host = ram_->host(frame_address(frame)) + inside;
        if (!out.empty() && static_cast<std::byte*>(out.back().iov_base) + out.back().iov_len == host)
            out.back().iov_len += n;
        else
            out.push_back({host, n});
        here += n;
    }
    return true;
}

bool AddressSpace::gather(GuestVirt at, std::uint64_t length, Access access, std::vector<iovec>& out) {
    const std::size_t runs = out.size(),
                      last = out.empty() ? 0 : out.back().iov_len; // append_runs() may extend the last range
    if (append_runs(at, length, access, out))
        return true;
    out.resize(runs);
    if (!out.empty())
        out.back().iov_len = last;
    return false;
}

void AddressSpace::note_host_write(GuestVirt at, std::uint64_t bytes) {
    if (!track_host_writes_)
        return;
    for (std::uint64_t page = page_down(at.value); page < at.value + bytes; page += kPageSize)
        note_frame(host_dirty_, pte::frame(tables_.get(GuestVirt(page))));
}

void AddressSpace::populate(GuestVirt at, std::uint64_t bytes) {
    for (std::uint64_t page = page_down(at.value); page < at.value + bytes; page += kPageSize) {
        if (pte::mapped(tables_.get(GuestVirt(page))))
            continue;
        const auto region = region_of(page);
        must_hold(region != regions_.end());
        if (populate_around(region, page, kAnonymousBlock) != FaultOutcome::done)
            throw HostError(ENOMEM, "guest memory for " + region->second.name);
    }
}

void AddressSpace::fill(GuestVirt at, std::span<const std::byte> bytes) {
    populate(at, bytes.size());
    for (std::size_t done = 0; done < bytes.size();) {
        const std::uint64_t here = at.value + done;
        const std::uint64_t inside = here & (kPageSize - 1);
        const std::size_t n = std::min<std::size_t>(kPageSize - inside, bytes.size() - done);
        const Frame frame = pte::frame(tables_.get(GuestVirt(page_down(here))));
        std::memcpy(ram_->host(frame_address(frame)) + inside, bytes.data() + done, n);
        done += n;
    }
}

void AddressSpace::populate_files() {
    for (auto it = regions_.begin(); it != regions_.end(); ++it) {
        if (!it->second.file || live(it->second))
            continue;
        for (std::uint64_t page = it->first; page < it->second.end; page += kPageSize) {
            if (pte::mapped(tables_.get(GuestVirt(page))))
                continue;
            const FaultOutcome outcome = populate_around(it, page, 2 << 20);
            if (outcome == FaultOutcome::no_memory)
                throw UserError(ExitCode::failure,
                                "the program's files do not fit in its memory; raise --max-main-memory");
            if (outcome != FaultOutcome::done)
                break; // beyond the end of the file: SIGBUS, in the image as before
        }
    }
}

void AddressSpace::populate_nearby() {
    for (auto it = regions_.begin(); it != regions_.end(); ++it) {
        if (it->second.file || !(it->second.prot & PROT_WRITE) || (it->second.flags & kRegionSupervisor))
            continue;
        // Blocks of the region to fill: all of a small region, else those with or next to a page in use.
        std::vector<std::uint64_t> blocks;
        const auto want = [&](std::uint64_t at) {
            const std::uint64_t block = at & ~(kNearby / 4 - 1);
            if (blocks.empty() || block > blocks.back())
                blocks.push_back(block);
        };
        bool used = false;
        if (it->second.name == "[connection buffers]")
            continue; // those in use were populated when the machine was booted
        tables_.update(GuestVirt(it->first), GuestVirt(it->second.end), [&](GuestVirt page, std::uint64_t entry) {
            used = true;
            if (page.value >= kNearby / 4)
                want(page.value - kNearby / 4);
            want(page.value);
            want(page.value + kNearby / 4);
            return entry;
        });
        if (!used)
            continue;
        if (it->second.end - it->first <= kNearby)
            for (std::uint64_t at = it->first & ~(kNearby / 4 - 1); at < it->second.end; at += kNearby / 4)
                want(at);
        for (const std::uint64_t block : blocks)
            for (std::uint64_t page = std::max(block, it->first); page < std::min(block + kNearby / 4, it->second.end);
                 page += kPageSize)
                if (!pte::mapped(tables_.get(GuestVirt(page))) &&
                    populate_around(it, page, kNearby / 4) != FaultOutcome::done)
                    return; // out of memory: this is only an optimisation
    }
    out_of_memory_ = false;
}

bool AddressSpace::has_wipe_on_fork() const {
    if (pristine_ && !regions_changed_)
        return pristine_wipes_;
    return std::any_of(regions_.begin(), regions_.end(),
                       [](const auto& r) { return r.second.flags & kRegionWipeOnFork; });
}

void AddressSpace::wipe_on_fork() {
    for (const auto& [begin, region] : regions_) {
        if (!(region.flags & kRegionWipeOnFork))
            continue;
        tables_.update(GuestVirt(begin), GuestVirt(region.end), [&](GuestVirt, std::uint64_t entry) {
            const Frame frame = pte::frame(entry);
            if (ram_->valid(frame) && !ram_->is_window(frame)) {
                if (track_host_writes_)
                    note_frame(host_dirty_, frame);
                if (!(entry & pte::kWrite))
                    note_frame(made_writable_, frame);
                std::memset(ram_->host(frame_address(frame)), 0, kPageSize);
            }
            return entry;
        });
    }
}

} // namespace tinykvm
