// Request machines: clones of one image, each on its own thread, reset after every connection.
#pragma once
#include <memory>

#include "src/event_loop/event_loop.hpp"
#include "src/runner/request_machine.hpp"
#include "src/setup/setup.hpp"

namespace kvmserver {

// Serves until SIGTERM or SIGINT. With `ephemeral` each connection gets a clean machine; else the machines keep
// their state and take connections side by side. Returns the exit code.
int serve(const Setup& setup, const Options& options, std::shared_ptr<const tinykvm::MachineImage> image);

// A machine that keeps its state: serves all connections until the program ends. Returns the exit code.
int serve_kept(const Setup& setup, tinykvm::Machine& machine, EventLoop& loop, WorkerStats& stats);

void print_stats(WorkerStats& stats, bool resets);

} // namespace kvmserver
