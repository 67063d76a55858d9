// Requests that we send to a program in a machine: warm-up, trial, after-restore hook.
#pragma once
#include <cstdint>
#include <string>

#include "src/event_loop/event_loop.hpp"
#include "tinykvm/machine/machine.hpp"

namespace kvmserver {

struct SyntheticReply {
    // closed: the program answered and closed the connection. Otherwise the reason why not; all connections have been
    // dropped.
    LoopEnd end = LoopEnd::closed;
    std::string text;        // what the program sent, cut to the first 64 KiB
    unsigned status() const; // of the final reply, skipping interim ones (RFC 9112, 4); 0: no such reply
};

// Sends `request`, which must ask for the connection to be closed, to the machine's first listener. A second thread
// writes and reads, so that neither side blocks the other. Throws UserError when the machine has no room for a
// connection.
SyntheticReply ask(tinykvm::Machine& machine, EventLoop& loop, std::string request, const tinykvm::Limits& limits);

// Runs the machine until it waits for its next connection (LoopEnd::quiescent), for at most `seconds` of CPU time and
// waiting.
LoopEnd run_until_quiet(tinykvm::Machine& machine, EventLoop& loop, double seconds);
// Whether it got there.
bool settle(tinykvm::Machine& machine, EventLoop& loop, double seconds);

// Runs all timers that are due within `seconds`, by advancing the machine's clock. Returns quiescent, or why the
// program no longer waits for connections. `patience`: limit for each timer, in seconds of CPU time and waiting.
LoopEnd run_out_timers(tinykvm::Machine& machine, EventLoop& loop, std::uint64_t seconds, double patience);

} // namespace kvmserver
