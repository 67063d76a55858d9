// The memory of a process that stands still, as finders see a machine's: to try them without a machine.
#pragma once
#include <sys/types.h>

#include "src/unique/memory_view.hpp"

namespace kvmserver::unique {

class ProcessMemory {
public:
    // Throws HostError when the process cannot be read.
    explicit ProcessMemory(pid_t process);
    const MemoryView& view() const { return view_; }

private:
    std::vector<tinykvm::Mapping> copies_;
    MemoryView view_;
};

} // namespace kvmserver::unique
