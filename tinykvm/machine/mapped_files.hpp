// The files behind shared mappings: from handles, and to and from snapshots.
#pragma once
#include <memory>
#include <vector>

#include "tinykvm/linux/handles.hpp"
#include "tinykvm/machine/state.hpp"
#include "tinykvm/memory/address_space.hpp"

namespace tinykvm {

// What a region that maps the handle's file is filled from; its origin is a copy of the handle. Without a descriptor when none is left.
std::shared_ptr<FileBacking> backing_of(const Handle& handle);
// The handle that a file was mapped through.
inline const Handle& mapped_handle(const FileBacking& file) { return *static_cast<const Handle*>(file.origin.get()); }

std::vector<FileMappingState> mapping_states(const AddressSpace::Regions& regions, const HandleBase& handles);
// Puts the files back that were mapped when a snapshot was made. A frozen region whose file is gone, or another one now, stays as it
// was; the pages of any other whose file is gone are SIGBUS. Throws UserError(bad_snapshot) for what no machine has.
void restore_mappings(AddressSpace::Regions& regions, const std::vector<FileMappingState>& states, const HandleBase& handles);

} // namespace tinykvm
