// Shared mappings of files: page faults, reactions to changed files, and system calls on them.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tinykvm/abi/layout.hpp"
#include "tinykvm/memory/address_space.hpp"

namespace tinykvm {
namespace {

constexpr std::uint64_t kBlock = 64 << 10; // mapped by one fault

std::int64_t mtime_of(const struct stat& info) {
    return static_cast<std::int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec;
}

} // namespace

int AddressSpace::file_fd(const FileBacking& file) const {
    if (file.memory && memory_files_.own_fd)
        return memory_files_.own_fd(file);
    return file.fd ? file.fd.get() : -EIO;
}

void AddressSpace::leave_window(const FileBacking& file, std::uint64_t offset) {
    for (auto& [begin, region] : regions_) {
        const std::uint64_t bytes = region.end - begin;
        if (region.file.get() != &file || !live(region) || region.file_offset >= offset + FileWindows::kBytes ||
            offset >= region.file_offset + bytes)
            continue;
        const std::uint64_t from = offset > region.file_offset ? offset - region.file_offset : 0;
        const std::uint64_t to = std::min(bytes, offset + FileWindows::kBytes - region.file_offset);
        tables_.update(GuestVirt(begin + from), GuestVirt(begin + to),
                       [](GuestVirt, std::uint64_t) -> std::uint64_t { return 0; });
    }
}

Frame AddressSpace::file_frame(const std::shared_ptr<const FileBacking>& file, std::uint64_t offset, int& error) {
    if (const Frame known = windows_.find(*file, offset); known != 0)
        return windows_.frame(file, -1, offset, {}, error);
    const int fd = file_fd(*file);
    if (fd < 0) {
        error = -fd;
        return 0;
    }
    return windows_.frame(
        file, fd, offset, [this](const FileBacking& gone, std::uint64_t at) { leave_window(gone, at); }, error);
}

FaultOutcome AddressSpace::populate_shared(Regions::iterator region, std::uint64_t at) {
    Region& r = region->second;
    const std::shared_ptr<const FileBacking> file = r.file;
    const int fd = file_fd(*file);
    struct stat info {};
    if (fd == -ENOSPC) { // no room for a private copy of the image's memory file
        out_of_memory_ = true;
        return FaultOutcome::no_memory;
    }
    if (fd < 0 || ::fstat(fd, &info) != 0)
        return FaultOutcome::past_file;
    const auto size = static_cast<std::uint64_t>(info.st_size);
    const std::uint64_t offset = r.file_offset + (at - region->first);
    if (offset >= page_up(size))
        return FaultOutcome::past_file;
    // The part of the block that lies in both the region and the file. A block never crosses a window.
    const std::uint64_t block = offset & ~(kBlock - 1);
    std::uint64_t first = std::max(block, r.file_offset);
    std::uint64_t last = std::min({block + kBlock, r.file_offset + (r.end - region->first), page_up(size)});
    if (file->memory) {
        // Pages of a memory file are memory of the machine, so they are counted before they are allocated.
        const bool holes = ::lseek(fd, static_cast<off_t>(first), SEEK_HOLE) < static_cast<off_t>(last);
        if (holes && memory_files_.may_grow && !memory_files_.may_grow(last - first)) {
            out_of_memory_ = true;
            return FaultOutcome::no_memory;
        }
        if (holes &&
            ::fallocate(fd, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first), static_cast<off_t>(last - first)) != 0) {
            first = offset; // a sealed file: map only the page that is touched now
            last = offset + kPageSize;
        }
    }
    int error = 0;
    const Frame frame = file_frame(file, first, error);
    if (frame == 0)
        return FaultOutcome::past_file;
    const std::uint64_t flags = leaf_flags(r);
    for (std::uint64_t here = first; here < last; here += kPageSize) {
        const GuestVirt page(region->first + (here - r.file_offset));
        if (pte::mapped(tables_.get(page)))
            continue;
        std::uint64_t entry = frame_address(frame + static_cast<Frame>((here - first) / kPageSize)).value | flags;
        if (!(flags & pte::kPresent))
            entry |= pte::kLazy;
        if (!tables_.set(page, entry)) {
            out_of_memory_ = true;
            return FaultOutcome::no_memory;
        }
    }
    return FaultOutcome::done;
}

std::int64_t AddressSpace::drop_own_pages(std::uint64_t at, std::uint64_t bytes) {
    constexpr std::uint64_t kEnd = layout::kFileArea + layout::kFileAreaBytes;
    if (((at | bytes) & (kPageSize - 1)) != 0 || at < layout::kFileArea || at > kEnd || bytes > kEnd - at)
        return -EINVAL;
    drop_pages(at, at + bytes);
    return 0;
}

bool AddressSpace::drop_lost_pages() {
    bool dropped = false;
    for (auto& [begin, region] : regions_) {
        if (!live(region))
            continue;
        const int fd = file_fd(*region.file);
        struct stat info {};
        const std::uint64_t size =
            fd >= 0 && ::fstat(fd, &info) == 0 ? page_up(static_cast<std::uint64_t>(info.st_size)) : 0;
        const std::uint64_t there =
            size > region.file_offset ? std::min(size - region.file_offset, region.end - begin) : 0;
        std::vector<Frame> lost;
        tables_.update(GuestVirt(begin + there), GuestVirt(region.end),
                       [&](GuestVirt, std::uint64_t entry) -> std::uint64_t {
                           lost.push_back(pte::frame(entry));
                           return 0;
                       });
        for (const Frame frame : lost)
            if (ram_->is_window(frame))
                ram_->drop_translations(frame, 1);
        dropped |= !lost.empty();
    }
    return dropped;
}

void AddressSpace::memory_file_cut(int fd) {
    struct stat cut {};
    if (windows_.empty() || ::fstat(fd, &cut) != 0)
        return;
    const FileBacking* last = nullptr;
    bool same = false;
    for (auto& [begin, region] : regions_) {
        if (!live(region) || !region.file->memory)
            continue;
        if (region.file.get() != last) {
            last = region.file.get();
            struct stat info {};
            const int own = windows_.has(*last) ? file_fd(*last) : -1;
            same = own >= 0 && ::fstat(own, &info) == 0 && info.st_dev == cut.st_dev && info.st_ino == cut.st_ino;
        }
        if (same)
            drop_pages(begin, region.end);
    }
}

// A page that a file no longer has must not kill this process by SIGBUS. Therefore windows are copied by the kernel,
// through a pipe: read and write return an error instead.
bool AddressSpace::copy_out(std::byte* to, const iovec& run) {
    if (!ram_->in_window(run.iov_base)) [[likely]]
        return GuestMemory::copy_out(to, run);
    return copy_in({to, run.iov_len}, static_cast<const std::byte*>(run.iov_base));
}

bool AddressSpace::copy_in(const iovec& run, const std::byte* from) {
    if (!ram_->in_window(run.iov_base) && !ram_->in_window(from)) [[likely]]
        return GuestMemory::copy_in(run, from);
    if (int ends[2]; !copy_pipe_[0]) {
        if (::pipe2(ends, O_CLOEXEC) != 0)
            return false;
        copy_pipe_[0] = UniqueFd(ends[0]);
        copy_pipe_[1] = UniqueFd(ends[1]);
    }
    auto* to = static_cast<std::byte*>(run.iov_base);
    for (std::size_t done = 0; done < run.iov_len;) {
        const ssize_t held =
            ::write(copy_pipe_[1].get(), from + done, std::min<std::size_t>(run.iov_len - done, kPageSize));
        if (held <= 0)
            return false;
        if (::read(copy_pipe_[0].get(), to + done, static_cast<std::size_t>(held)) != held) {
            copy_pipe_[0] = UniqueFd(); // discards the bytes left in the pipe
            copy_pipe_[1] = UniqueFd();
            return false;
        }
        done += static_cast<std::size_t>(held);
    }
    return true;
}

void AddressSpace::settle_files(const std::function<bool(const FileBacking&)>& written) {
    for (auto& [begin, region] : regions_) {
        if (!live(region))
            continue;
        tables_.update(GuestVirt(begin), GuestVirt(region.end),
                       [](GuestVirt, std::uint64_t) -> std::uint64_t { return 0; });
        struct stat info {};
        const bool file_known = region.file->fd && ::fstat(region.file->fd.get(), &info) == 0;
        if (region.file->writable || region.file->memory || !file_known || written(*region.file))
            continue;
        auto frozen = std::make_shared<FileBacking>();
        frozen->fd = region.file->fd;
        frozen->name = region.file->name;
        frozen->origin = region.file->origin;
        frozen->size = static_cast<std::uint64_t>(info.st_size);
        frozen->mtime_ns = mtime_of(info);
        region.file = std::move(frozen);
        region.flags |= kRegionFrozen;
        changed();
    }
    windows_.clear();
}

void AddressSpace::for_each_mapped_file(const std::function<void(std::shared_ptr<const FileBacking>&)>& fn) {
    for (auto& [begin, region] : regions_)
        if (live(region))
            fn(region.file);
}

void AddressSpace::thaw(Regions::iterator region) {
    changed();
    region->second.flags &= ~static_cast<std::uint32_t>(kRegionFrozen);
    drop_pages(region->first, region->second.end);
}

// Goes by the image's frozen regions, because the program may have split or unmapped its own since.
void AddressSpace::follow_files() {
    for (const std::uint64_t begin : frozen_) {
        const Region& frozen = pristine_->at(begin);
        struct stat info {};
        if (::fstat(frozen.file->fd.get(), &info) == 0 &&
            static_cast<std::uint64_t>(info.st_size) == frozen.file->size && mtime_of(info) == frozen.file->mtime_ns)
            continue;
        for (auto it = regions_.begin(); it != regions_.end(); ++it)
            if (it->second.file == frozen.file && (it->second.flags & kRegionFrozen))
                thaw(it);
    }
}

void AddressSpace::file_opened_for_writing(int fd) {
    struct stat opened {};
    if (frozen_.empty() || ::fstat(fd, &opened) != 0)
        return;
    for (auto it = regions_.begin(); it != regions_.end(); ++it) {
        struct stat info {};
        if ((it->second.flags & kRegionFrozen) && it->second.file && ::fstat(it->second.file->fd.get(), &info) == 0 &&
            info.st_dev == opened.st_dev && info.st_ino == opened.st_ino)
            thaw(it);
    }
}

std::int64_t AddressSpace::msync(std::uint64_t at, std::uint64_t bytes, std::uint32_t flags) {
    if ((flags & ~std::uint32_t{MS_ASYNC | MS_INVALIDATE | MS_SYNC}) != 0 || (at & (kPageSize - 1)) != 0 ||
        ((flags & MS_ASYNC) && (flags & MS_SYNC)))
        return -EINVAL;
    if (bytes > ~std::uint64_t{0} - kPageSize || at + page_up(bytes) < at)
        return -ENOMEM;
    const std::uint64_t end = at + page_up(bytes);
    // The file's pages have the data already. This writes them to disk.
    const FileBacking* last = nullptr;
    for (auto it = region_of(at) != regions_.end() ? region_of(at) : regions_.lower_bound(at);
         it != regions_.end() && it->first < end && (flags & MS_SYNC) && !trial_; ++it) {
        const Region& region = it->second;
        if (!live(region) || region.file->memory || !region.file->writable || region.file.get() == last)
            continue;
        last = region.file.get();
        if (last->fd && ::fdatasync(last->fd.get()) != 0 && errno != EINVAL)
            return -errno;
    }
    return all_mapped(at, end);
}

// Implements MADV_REMOVE.
std::int64_t AddressSpace::punch_holes(std::uint64_t at, std::uint64_t end) {
    for (auto it = region_of(at) != regions_.end() ? region_of(at) : regions_.lower_bound(at);
         it != regions_.end() && it->first < end; ++it) {
        const Region& region = it->second;
        const std::uint64_t begin = std::max(at, it->first), stop = std::min(end, region.end);
        if (!(region.flags & kRegionShared))
            return region.file || region.name.starts_with('/') ? -EACCES : -EINVAL;
        if (!region.file) {
            drop_pages(begin, stop);
            continue;
        }
        if (!region.file->writable)
            return -EACCES;
        const int fd = file_fd(*region.file);
        if (!trial_ && (fd < 0 || ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                              static_cast<off_t>(region.file_offset + (begin - it->first)),
                                              static_cast<off_t>(stop - begin)) != 0))
            return fd < 0 ? -EIO : -errno;
        if (region.file->memory)
            memory_file_cut(fd);
    }
    return 0;
}

// Implements MAP_GROWSDOWN: extends the region above a faulting address down to it, up to the size of a stack and with
// a gap to the region below.
bool AddressSpace::grow_down(std::uint64_t at) {
    constexpr std::uint64_t kGuard = 256 * kPageSize; // mm/mmap.c, stack_guard_gap
    const auto above = regions_.upper_bound(at);
    if (above == regions_.end() || !(above->second.flags & kRegionGrowsDown) || above->second.prot == 0)
        return false;
    const std::uint64_t begin = page_down(at), more = above->first - begin;
    const std::uint64_t below = above == regions_.begin() ? 0 : std::prev(above)->second.end;
    if (above->second.end - begin > layout::kStackBytes || begin < std::max(layout::kUserMin, below + kGuard) ||
        mapped_bytes_ + more > max_bytes_ || regions_.size() >= kMaxRegions)
        return false;
    Region region = above->second;
    region.end = above->first;
    insert(begin, std::move(region));
    return true;
}

} // namespace tinykvm
