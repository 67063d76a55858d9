// Memory calls of the program, and the files of shared mappings.
#include <asm/unistd_64.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "tinykvm/linux/call.hpp"
#include "tinykvm/machine/machine.hpp"
#include "tinykvm/machine/mapped_files.hpp"
#include "tinykvm/machine/memory_limits.hpp"

namespace tinykvm {
namespace {

constexpr std::uint32_t kMlock2 = 325;

} // namespace

void Machine::serve_memory_files() {
    space_.set_memory_files({[this](const FileBacking& file) {
                                 const auto own = handles_.own_memory_file(mapped_handle(file).file);
                                 return own ? own->fd() : -(errno ? errno : EIO);
                             },
                             [this](std::uint64_t bytes) { return handles_.memfds_may_grow(bytes); }});
    // Memory files count as memory of the machine, like its frames. A snapshot holds at most kMax of them.
    constexpr std::uint64_t kMax = 1ull << 30;
    const Limits& limits = env_->limits;
    ram_.count_outside([this] { return handles_.memfd_bytes(); });
    handles_.set_memfd_limit(
        std::min(kMax, image_ ? memory_beside_image(limits, image_->image->bytes().size()) : limits.memory),
        [this](std::uint64_t bytes) { return ram_.reserve_outside(bytes); });
}

std::int64_t Machine::map_call(const abi::HostCall& call) {
    const auto& a = call.arg;
    std::shared_ptr<const FileBacking> file;
    auto flags = static_cast<std::uint32_t>(a[3]);
    const auto handle = static_cast<std::int32_t>(a[4]);
    const bool shared = (flags & MAP_TYPE) != MAP_PRIVATE;
    if (shared && (flags & MAP_GROWSDOWN))
        return -EINVAL;
    if (!(flags & MAP_ANONYMOUS)) {
        if (const int error = handles_.map_error(handle, static_cast<int>(a[2]), shared); error != 0)
            return -error;
        const Handle* found = handles_.find(handle);
        if (found->info.kind == HandleKind::device) {
            if (found->info.path != "/dev/zero")
                return -ENODEV; // no device memory
        } else {
            bool writable = (found->info.flags & O_ACCMODE) == O_RDWR && !found->info.synthetic;
            const bool memory = found->info.kind == HandleKind::memfd;
            if (memory && shared) {
                constexpr int kNoMoreWriting = F_SEAL_WRITE | 0x10; // F_SEAL_FUTURE_WRITE
                const int seals = ::fcntl(found->file->fd(), F_GET_SEALS);
                if (seals > 0 && (seals & kNoMoreWriting) != 0) {
                    if (a[2] & PROT_WRITE)
                        return -EPERM;
                    writable = false;
                }
            }
            file = mapped_files_.of(*found, shared, writable);
            if (!file)
                return -ENFILE;
            if (memory)
                handles_.note_mapped(found->file);
        }
    }
    return space_.mmap(a[0], a[1], static_cast<std::uint32_t>(a[2]) & ~0x01000000u, flags, std::move(file), a[5]);
}

std::int64_t Machine::memory_call(const abi::HostCall& call, bool& handled) {
    handled = true;
    const auto& a = call.arg;
    std::int64_t result;
    const auto limit = [](const std::uint64_t& field) { return *static_cast<const volatile std::uint64_t*>(&field); };
    if (exceeds_own_limits(space_, call, limit(shared_->limit_address_space), limit(shared_->limit_data)))
        return call.nr == __NR_brk ? static_cast<std::int64_t>(space_.brk_end()) : -ENOMEM;
    switch (call.nr) {
    case __NR_mmap: result = map_call(call); break;
    case __NR_munmap: result = space_.munmap(a[0], a[1]); break;
    case __NR_mprotect:
        if (!env_->limits.executable_heap && (a[2] & PROT_EXEC) && space_.holds_heap(a[0], a[1]))
            result = -EACCES;
        else
            result = space_.mprotect(a[0], a[1], static_cast<std::uint32_t>(a[2]));
        break;
    case __NR_mremap: result = space_.mremap(a[0], a[1], a[2], static_cast<std::uint32_t>(a[3]), a[4]); break;
    case __NR_madvise: result = space_.madvise(a[0], a[1], static_cast<int>(a[2])); break;
    case __NR_brk: result = space_.brk(a[0]); break;
    case __NR_mincore: result = space_.mincore(a[0], a[1], GuestVirt(a[2])); break;
    case __NR_msync: result = space_.msync(a[0], a[1], static_cast<std::uint32_t>(a[2])); break;
    case __NR_mlock:
    case __NR_munlock:
    case kMlock2: result = space_.mlock(a[0], a[1]); break;
    case abi::kDropOwnPages: return space_.drop_own_pages(a[0], a[1]);
    default: handled = false; return 0;
    }
    if (env_->options.trace_mmap)
        host_->note(fmt::format("{}({:#x}, {:#x}, {:#x}, {:#x}) = {:#x}", call_name(call.nr), a[0], a[1], a[2], a[3],
                                static_cast<std::uint64_t>(result)));
    return result;
}

// Opening a file for writing or truncating it may make frozen regions outdated. Freed pages of a memory file must be
// unmapped.
void Machine::after_file_call(const abi::HostCall& call, std::int64_t result) {
    if (result < 0)
        return;
    const bool cut =
        call.nr == __NR_ftruncate || (call.nr == __NR_fallocate && (call.arg[1] & FALLOC_FL_PUNCH_HOLE) != 0);
    if (const Handle* handle = cut ? handles_.find(static_cast<std::int32_t>(call.arg[0])) : nullptr;
        handle && handle->info.kind == HandleKind::memfd && handle->file)
        space_.memory_file_cut(handle->file->fd());
    if (!image_)
        return;
    if (call.nr == __NR_openat && (call.arg[2] & (O_ACCMODE | O_TRUNC)) != 0)
        space_.file_opened_for_writing(handles_.fd(static_cast<std::int32_t>(result)));
    else if (call.nr == __NR_truncate)
        space_.follow_files();
}

// Call this before an image is made. Gives each file that stays mapped a handle number, because snapshots store
// handles, and replaces memory files by this machine's own copies.
void Machine::settle_mapped_files() {
    const std::vector<FileIdentity> written = handles_.open_for_writing();
    space_.settle_files([&](const FileBacking& file) {
        struct stat info {};
        return ::fstat(file.fd.get(), &info) != 0 ||
               std::any_of(written.begin(), written.end(),
                           [&](const FileIdentity& w) { return w.dev == info.st_dev && w.ino == info.st_ino; });
    });
    space_.for_each_mapped_file([&](std::shared_ptr<const FileBacking>& file) {
        Handle handle = mapped_handle(*file);
        if (!handle.file)
            return; // the file was missing when a snapshot was restored
        if (file->memory)
            if (const auto own = handles_.own_memory_file(handle.file); own && own != handle.file) {
                handle.file = own;
                file = backing_of(handle);
            }
        handles_.number_of(handle);
    });
}

} // namespace tinykvm
