// The files of file mappings: made from handles, saved to snapshots and restored from them.
#pragma once
#include <compare>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tinykvm/linux/handles.hpp"
#include "tinykvm/machine/state.hpp"
#include "tinykvm/memory/address_space.hpp"

namespace tinykvm {

// The backing of a region that maps the handle's file. Its origin is a copy of the handle.
std::shared_ptr<FileBacking> backing_of(const Handle& handle);

// The files that a machine has mapped. All mappings of a file that was opened in the same way share one backing, so
// that the host spends one descriptor per file, not per mapping.
class MappedFiles {
public:
    explicit MappedFiles(std::size_t max_files) : max_files_(max_files) {}
    // `writable`: whether shared mappings of it may be written to. Null when there are `max_files` already, or the
    // handle has no file.
    std::shared_ptr<const FileBacking> of(const Handle& handle, bool shared, bool writable);

private:
    struct Key {
        std::uint64_t dev, ino;
        std::string path;
        std::uint32_t access;
        bool shared, writable;
        auto operator<=>(const Key&) const = default;
    };
    std::map<Key, std::weak_ptr<const FileBacking>> files_;
    std::size_t max_files_;
};

// The handle that a file was mapped through. Not for private mappings, which keep none.
inline const Handle& mapped_handle(const FileBacking& file) { return *static_cast<const Handle*>(file.origin.get()); }

// The shared file mappings of an image, for its snapshot.
std::vector<FileMappingState> mapping_states(const AddressSpace::Regions& regions, const HandleBase& handles);
// Restores the file mappings of a snapshot. A frozen region whose file is gone or was replaced keeps its content.
// Access to another region whose file is gone raises SIGBUS. Throws UserError(bad_snapshot) for mappings that no
// machine can have.
void restore_mappings(AddressSpace::Regions& regions, const std::vector<FileMappingState>& states,
                      const HandleBase& handles);

} // namespace tinykvm
