// The memory of a machine's image, put in the order of guest addresses.
#pragma once
#include "src/unique/memory_view.hpp"
#include "tinykvm/machine/machine.hpp"

namespace kvmserver::unique {

// A copy of all that the program has mapped. Loads what of the image is not there yet.
class MachineMemory {
public:
    // Throws HostError; UserError(bad_snapshot) for what cannot be loaded.
    explicit MachineMemory(const tinykvm::MachineImage& image);
    const MemoryView& view() const { return view_; }

private:
    std::vector<tinykvm::Mapping> copies_;
    MemoryView view_;
};

} // namespace kvmserver::unique
