// Requests of our own to a program in a machine: the warm-up, the trial, the after-restore hook.
#pragma once
#include <cstdint>
#include <string>

#include "src/event_loop/event_loop.hpp"
#include "tinykvm/machine/machine.hpp"

namespace kvmserver {

struct SyntheticReply {
    // closed: the program has answered and closed. Else why not, with all connections dropped.
    LoopEnd end = LoopEnd::closed;
    std::string text;        // what it sent, or the beginning of that
    unsigned status() const; // of the reply that is not an interim one (RFC 9112, 4); 0: there is none
};

// Sends `request`, which asks for the connection to be closed, over a connection to the machine's first
// listener, and reads what comes aside, so that neither side waits for the other. Throws UserError when the
// machine has no room for a connection.
SyntheticReply ask(tinykvm::Machine& machine, EventLoop& loop, std::string request, const tinykvm::Limits& limits);

// Runs it until it waits for its next connection. False: it does not within `seconds` of CPU time and waiting, or
// ended.
bool settle(tinykvm::Machine& machine, EventLoop& loop, double seconds);

// Lets the timers run that are due within so many seconds, by moving the machine's clock on. Returns quiescent, or why
// it does not wait for connections any more. `patience`: seconds of CPU time and waiting for each.
LoopEnd run_out_timers(tinykvm::Machine& machine, EventLoop& loop, std::uint64_t seconds, double patience);

} // namespace kvmserver
