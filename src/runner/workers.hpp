// Request machines: clones of one image, each on its own thread, reset after every connection.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

#include "src/runner/setup.hpp"

namespace kvmserver {

struct WorkerStats {
    std::atomic<std::uint64_t> connections{0}, exits{0}, pages_copied{0}, pages_dropped{0}, reset_ns{0}, failures{0};
};

// Serves until SIGTERM or SIGINT. With `ephemeral` each connection gets a clean machine; else the machines keep
// their state and take connections side by side. Returns the exit code.
int serve(const Setup& setup, const Options& options, std::shared_ptr<const tinykvm::MachineImage> image);

void print_stats(const WorkerStats& stats);

} // namespace kvmserver
