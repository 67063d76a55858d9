// The memory of a machine's image, arranged by guest address.
#pragma once
#include "src/unique/memory_view.hpp"
#include "tinykvm/machine/machine.hpp"

namespace kvmserver::unique {

// A copy of all memory that the program has mapped. Loads the parts of the image that are not loaded yet.
class MachineMemory {
public:
    // Throws HostError, and UserError(bad_snapshot) when a part cannot be loaded.
    explicit MachineMemory(const tinykvm::MachineImage& image);
    const MemoryView& view() const { return view_; }

private:
    std::vector<tinykvm::Mapping> copies_;
    MemoryView view_;
};

} // namespace kvmserver::unique
