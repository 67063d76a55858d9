// A program's boot, until it waits for its first connection.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "src/event_loop/event_loop.hpp"
#include "src/setup/setup.hpp"

namespace kvmserver {

// A booted program. `machine` is null when it ended instead (what happened has been told).
struct Booted {
    std::unique_ptr<EventLoop> loop;
    std::unique_ptr<tinykvm::Machine> machine;
    int exit_code = 0;                // of the command, where there is no machine
    LoopEnd end = LoopEnd::quiescent; // how the boot ended
    double seconds = 0;
    std::uint64_t warm_ns = 0; // CPU time of the cheapest request of the warm-up; 0: there was none
    std::string warm_reply;    // the last one to warm_up(), or its beginning
    unsigned warm_status = 0;  // of the last reply to warm_up(); 0: that was not HTTP
};

// `must_listen`: ending before it waits for a connection is an error, and boot time is limited.
Booted boot_program(const Setup& setup, const Options& options, bool must_listen);

} // namespace kvmserver
