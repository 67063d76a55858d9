// Boots a program until it waits for its first connection.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "src/event_loop/event_loop.hpp"
#include "src/setup/setup.hpp"

namespace kvmserver {

// A booted program. `machine` is null when the program ended instead; the reason has been logged then.
struct Booted {
    std::unique_ptr<EventLoop> loop;
    std::unique_ptr<tinykvm::Machine> machine;
    int exit_code = 0;                // of the command, when there is no machine
    LoopEnd end = LoopEnd::quiescent; // how the boot ended
    double seconds = 0;
    std::uint64_t warm_ns = 0; // CPU time of the cheapest warm-up request; 0: no warm-up
    std::string warm_reply;    // last reply to warm_up(), or its beginning
    unsigned warm_status = 0;  // of that reply; 0: it was not HTTP
};

struct BootTerms {
    bool must_listen = true;               // it is an error when the program ends before it waits for a connection
    bool limited = true;                   // by Limits::boot_seconds
    tinykvm::Debugger* debugger = nullptr; // the program waits for it before its first instruction
};
Booted boot_program(const Setup& setup, const Options& options, BootTerms terms);

} // namespace kvmserver
