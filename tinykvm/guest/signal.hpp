// Declarations shared by the files that implement signals.
#pragma once
#include "tinykvm/guest/kernel.hpp"

namespace gk {

enum : u64 {
    kSaSiginfo = 4,
    kSaOnstack = 0x08000000,
    kSaRestart = 0x10000000,
    kSaNodefer = 0x40000000,
    kSaResethand = 0x80000000
};
constexpr u64 bit(i32 signal) { return u64{1} << (signal - 1); }
inline constexpr u64 kUnmaskable = bit(SIGKILL_) | bit(SIGSTOP_);
// Flags of alternate stacks.
inline constexpr i32 kOnStack = 1, kDisable = 2, kAutoDisarm = i32(0x80000000u);

struct Action {
    u64 handler, flags, restorer, mask;
};
extern Action actions[65];
extern Pending process_pending;

// The SigInfo of a signal that the process sends to itself.
inline SigInfo own_signal(i32 signal, i32 code, u64 value = 0) {
    return {signal, 0, code, 0, gk_shared_page.pid | u64{current->ids.user.real} << 32, value};
}
// Takes the next pending signal among `of` for the current thread. False: there is none.
bool take_signal(u64 of, SigInfo& info);
void forget_ignored(i32 signal);    // after a change of action: drops the pending signal if it is now ignored
void tell_signal_files(i32 signal); // wakes signalfds after the signal was queued
u64 program_rip(u64 rip);           // for a RIP in a stub, the matching address in the program's code
// Pushes a signal frame on the program's stack. False if the stack has no room or cannot be written.
bool push_frame(Regs*, i32 signal, const Action&, const SigInfo&, u64 mask);

} // namespace gk
