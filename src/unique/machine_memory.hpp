// The memory of a machine's image, arranged by guest address.
#pragma once
#include "src/unique/memory_view.hpp"
#include "tinykvm/machine/machine.hpp"

namespace kvmserver::unique {

// All memory that the program has mapped, copied or mapped from the image. Loads the parts of the image that are not
// loaded yet.
class MachineMemory {
public:
    // Throws HostError, and UserError(bad_snapshot) when a part cannot be loaded.
    // The image must not change while this object lives.
    explicit MachineMemory(const tinykvm::MachineImage& image);
    const MemoryView& view() const { return view_; }

private:
    std::vector<tinykvm::Mapping> copies_;
    MemoryView view_;
};

} // namespace kvmserver::unique
