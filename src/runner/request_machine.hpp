// A request machine: a clone of an image that serves one connection at a time and is reset after each.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "src/event_loop/event_loop.hpp"
#include "src/runner/connections/connection_source.hpp"
#include "src/setup/setup.hpp"

namespace kvmserver {

// Totals of all machines.
struct WorkerStats {
    std::atomic<std::uint64_t> connections{0}, exits{0}, pages_copied{0}, pages_dropped{0}, reset_ns{0}, failures{0};
    std::mutex mutex;
    std::map<std::uint32_t, std::uint64_t> reasons; // exits by reason, see Machine::exit_reasons; guarded by `mutex`
};

// Whether request machines are reset by dirty bits, as --reset or the host's abilities decide.
bool uses_dirty_bits(const Setup& setup, const Options& options);

// Belongs to one thread. The arguments must outlive it. `neighbours`: in place of the set-up's.
class RequestMachine {
public:
    RequestMachine(const Setup& setup, const Options& options, std::shared_ptr<const tinykvm::MachineImage> image,
                   ConnectionSource& source, WorkerStats& stats, const Stopper& stop,
                   tinykvm::Neighbours* neighbours = nullptr);
    // Makes the machine. Throws HostError, UserError.
    void prepare();
    // Waits for a client, serves it and resets the machine. Returns false when the server is to stop.
    bool serve_one();
    // Between two calls of serve_one(), on the machine's thread: gives all of its memory back. The next client waits
    // until it is made again.
    void rest();
    // Adds the machine's exit reasons to the stats; call at the end.
    void add_reasons();
    std::optional<tinykvm::ArenaPages> arena_pages() const { return machine_->arena_pages(); } // after prepare()
    bool difference_found() const { return difference_; }                                      // with --check-reset

private:
    void report(request::Outcome outcome);
    void finish(LoopEnd end);
    void replace();
    void clean(Served& served);

    const Setup& setup_;
    const Options& options_;
    std::shared_ptr<const tinykvm::MachineImage> image_;
    ConnectionSource& source_;
    WorkerStats& stats_;
    tinykvm::MachineEnv env_;
    EventLoop loop_;
    std::unique_ptr<tinykvm::Machine> machine_;
    std::function<void(request::Outcome)> report_outcome_;
    bool difference_ = false;
};

} // namespace kvmserver
