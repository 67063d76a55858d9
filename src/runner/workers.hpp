// Request machines: clones of one image, each on its own thread, reset after every connection.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "src/runner/setup.hpp"

namespace kvmserver {

struct WorkerStats {
    std::atomic<std::uint64_t> connections{0}, exits{0}, pages_copied{0}, pages_dropped{0}, reset_ns{0}, failures{0};
    std::mutex mutex;
    std::map<std::uint32_t, std::uint64_t> reasons; // of exits, see Machine::exit_reasons; by mutex
};

// Which reset request machines of this host use, by --reset or by what the host can do.
bool uses_dirty_bits(const Setup& setup, const Options& options);

// Serves until SIGTERM or SIGINT. With `ephemeral` each connection gets a clean machine; else the machines keep
// their state and take connections side by side. Returns the exit code.
int serve(const Setup& setup, const Options& options, std::shared_ptr<const tinykvm::MachineImage> image);

void print_stats(WorkerStats& stats);

} // namespace kvmserver
