// Request machines on their threads: clones of one image, each on its own thread.
#pragma once
#include <memory>

#include "src/event_loop/event_loop.hpp"
#include "src/runner/request_machine.hpp"
#include "src/setup/setup.hpp"
#include "src/setup/storage.hpp"

namespace kvmserver {

// Serves until SIGTERM or SIGINT. With `ephemeral` each connection gets a clean machine. Otherwise the machines keep
// their state and serve connections concurrently. With `storage`, each may get a machine of it. Returns the exit code.
int serve(const Setup& setup, const Options& options, std::shared_ptr<const tinykvm::MachineImage> image,
          Storage* storage = nullptr);

// Serves with one machine that keeps its state, until the program ends. Returns the exit code.
int serve_kept(const Setup& setup, tinykvm::Machine& machine, EventLoop& loop, WorkerStats& stats);

void print_stats(WorkerStats& stats, bool resets);

} // namespace kvmserver
