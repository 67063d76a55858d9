// What a machine asks of the debugger that is attached to it. Called on the machine's thread.
#pragma once
#include <cstdint>

#include "tinykvm/debug/session.hpp"

namespace tinykvm {

class Machine;

class Debugger {
public:
    virtual ~Debugger() = default;
    // The program has stopped; returns how it goes on. DebugTarget shows it.
    virtual debug::Resume stopped(Machine& machine, const debug::StopReason& reason) = 0;
    // Asked now and then while the program runs: whether it is to stop.
    virtual bool wants_stop() = 0;
    // A descriptor that becomes readable when wants_stop() may have become true.
    virtual int fd() const = 0;
    virtual bool breakpoint_at(std::uint64_t address) const = 0;
};

} // namespace tinykvm
