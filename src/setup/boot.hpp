// Boots a program until it waits for its first connection.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "src/event_loop/event_loop.hpp"
#include "src/setup/hidden_output.hpp"
#include "src/setup/setup.hpp"

namespace kvmserver {

// A booted program. `machine` is null when the program ended instead; the reason has been logged then.
struct Booted {
    std::unique_ptr<EventLoop> loop;
    std::unique_ptr<tinykvm::Machine> machine;
    int exit_code = 0;                // of the command, when there is no machine
    LoopEnd end = LoopEnd::quiescent; // how the boot ended
    double seconds = 0;
    std::uint64_t warm_ns = 0;            // CPU time of the cheapest round of the warm-up; 0: no warm-up
    std::string warm_reply;               // the last reply to a warm-up request, or its beginning
    std::shared_ptr<HiddenOutput> hidden; // gets its output during a warm-up; null: it is shown (-v)
    std::vector<unsigned> warm_statuses;  // of the last round's replies; 0: one was not HTTP
};

struct BootTerms {
    bool must_listen = true;               // it is an error when the program ends before it waits for a connection
    bool limited = true;                   // by Limits::boot_seconds
    tinykvm::Debugger* debugger = nullptr; // the program waits for it before its first instruction
};
Booted boot_program(const Setup& setup, const Options& options, BootTerms terms);

} // namespace kvmserver
