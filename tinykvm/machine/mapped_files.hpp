// The files behind shared mappings: from handles, and to and from snapshots.
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

// What a region that maps the handle's file is filled from; its origin is a copy of the handle.
std::shared_ptr<FileBacking> backing_of(const Handle& handle);

// What a machine has mapped since it was made: all mappings of a file that was opened for the same have one backing, so
// that a program holds a descriptor of the host for each file, not for each mapping.
class MappedFiles {
public:
    explicit MappedFiles(std::size_t most) : most_(most) {}
    // `writable`: shared mappings of it may be written to. Null when there are `most` already.
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
    std::size_t most_;
};
// The handle that a file was mapped through.
inline const Handle& mapped_handle(const FileBacking& file) { return *static_cast<const Handle*>(file.origin.get()); }

std::vector<FileMappingState> mapping_states(const AddressSpace::Regions& regions, const HandleBase& handles);
// Puts the files back that were mapped when a snapshot was made. A frozen region whose file is gone, or another one
// now, stays as it was; the pages of any other whose file is gone are SIGBUS. Throws UserError(bad_snapshot) for what
// no machine has.
void restore_mappings(AddressSpace::Regions& regions, const std::vector<FileMappingState>& states,
                      const HandleBase& handles);

} // namespace tinykvm
