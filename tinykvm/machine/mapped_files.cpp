#include "tinykvm/machine/mapped_files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <limits>

#include "tinykvm/base/error.hpp"

namespace tinykvm {
namespace {

// A copy of the handle, with a host file reopened. Otherwise a mapping would keep the file locks of the original
// descriptor alive after it is closed.
Handle apart(const Handle& handle) {
    Handle own = handle;
    if (handle.file && handle.info.kind == HandleKind::file) {
        const int access = static_cast<int>(handle.info.flags) & O_ACCMODE;
        if (UniqueFd fd(::open(host_path_of(handle.file->fd()).c_str(), access | O_NONBLOCK | O_CLOEXEC)); fd)
            own.file = std::make_shared<const HostFile>(std::move(fd));
    }
    return own;
}

} // namespace

std::shared_ptr<FileBacking> backing_of(const Handle& handle) {
    auto file = std::make_shared<FileBacking>();
    const Handle own = apart(handle);
    if (own.file)
        file->fd = SharedFd(own.file, own.file->fd());
    file->name = handle.info.path;
    file->memory = handle.info.kind == HandleKind::memfd;
    file->writable = (handle.info.flags & O_ACCMODE) == O_RDWR && !handle.info.synthetic;
    file->origin = std::make_shared<const Handle>(own);
    return file;
}

std::shared_ptr<const FileBacking> MappedFiles::of(const Handle& handle, bool shared, bool writable) {
    struct stat info {};
    if (!handle.file || ::fstat(handle.file->fd(), &info) != 0)
        return nullptr;
    const Key key{info.st_dev, info.st_ino, handle.info.path, handle.info.flags & O_ACCMODE, shared, writable};
    if (const auto known = files_.find(key); known != files_.end())
        if (auto file = known->second.lock())
            return file;
    if (files_.size() >= max_files_)
        std::erase_if(files_, [](const auto& entry) { return entry.second.expired(); });
    if (files_.size() >= max_files_)
        return nullptr;
    auto file = backing_of(handle);
    file->writable = writable;
    if (!shared)
        file->origin = nullptr; // images keep shared mappings only
    files_[key] = file;
    return file;
}

std::vector<FileMappingState> mapping_states(const AddressSpace::Regions& regions, const HandleBase& handles) {
    std::vector<FileMappingState> states;
    for (const auto& [begin, region] : regions) {
        if (!(region.flags & kRegionShared) || !region.file)
            continue;
        const FileBacking& file = *region.file;
        if (const std::int32_t number = handles.number_of(mapped_handle(file)); number >= 0)
            states.push_back({begin, number, region.file_offset, file.size, file.mtime_ns});
    }
    return states;
}

void restore_mappings(AddressSpace::Regions& regions, const std::vector<FileMappingState>& states,
                      const HandleBase& handles) {
    for (const FileMappingState& state : states) {
        const auto at = regions.find(state.begin);
        const Handle* handle = handles.find(state.handle);
        const bool sound = at != regions.end() && (at->second.flags & kRegionShared) && !at->second.file && handle &&
                           (handle->info.kind == HandleKind::file || handle->info.kind == HandleKind::memfd) &&
                           (state.offset & (kPageSize - 1)) == 0 &&
                           state.offset <= std::numeric_limits<std::int64_t>::max() - (at->second.end - at->first);
        if (!sound)
            throw UserError(ExitCode::bad_snapshot,
                            fmt::format("snapshot: {:#x} is not a mapping of a file", state.begin));
        Region& region = at->second;
        if ((region.flags & kRegionFrozen) && (handle->lost != 0 || !handle->file))
            continue;
        const auto file = backing_of(*handle);
        file->size = state.size;
        file->mtime_ns = state.mtime_ns;
        region.file = file;
        region.file_offset = state.offset;
    }
}

} // namespace tinykvm
