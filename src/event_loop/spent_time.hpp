// What a program has used of a time limit: what it could have done something with.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>

#include "tinykvm/machine/clock.hpp"

namespace kvmserver {

// Why a time limit ended a program's turn.
enum class Overrun {
    none,
    computed, // for the whole limit
    stuck,    // it waited for what nobody would send: no timer, no other connection
    idle,     // its client neither sent nor took anything
    total,    // the request as a whole took too long
};

// The CPU time of this thread since the last progress, and the waits that count. Time in which the thread could run but
// the host gave the CPU to others is nobody's, as long as it gets its `share` of it. Belongs to the thread that runs
// the machine.
class SpentTime {
public:
    void restart(std::uint64_t now_ns) {
        since_ns_ = now_ns;
        waited_ns_ = all_waits_ns_ = 0;
        cpu_begin_ns_.reset();
    }
    // Overrun::none: a wait that does not count.
    void waited(std::uint64_t ns, Overrun why) {
        all_waits_ns_ += ns;
        if (why == Overrun::none)
            return;
        waited_ns_ += ns;
        why_ = why;
    }
    // Asks for the CPU's clock, a system call, only for what has lasted: most requests never do.
    // One part in `share` of the time between waits counts even when it was not this thread that ran; 0: none of it.
    std::uint64_t in_all(std::uint64_t now_ns, unsigned share) {
        constexpr std::uint64_t kShortNs = 10'000'000;
        if (now_ns < since_ns_ + kShortNs)
            return waited_ns_;
        const std::uint64_t cpu_ns = tinykvm::thread_cpu_ns();
        if (!cpu_begin_ns_)
            cpu_begin_ns_ = cpu_ns;
        const std::uint64_t between_waits_ns = now_ns - since_ns_ - std::min(all_waits_ns_, now_ns - since_ns_);
        return waited_ns_ + std::max(cpu_ns - *cpu_begin_ns_, share ? between_waits_ns / share : 0);
    }
    // What most of `limit_ns`, used up, went into.
    Overrun why(std::uint64_t limit_ns) const { return waited_ns_ > limit_ns / 2 ? why_ : Overrun::computed; }

private:
    std::uint64_t since_ns_ = 0, waited_ns_ = 0, all_waits_ns_ = 0;
    std::optional<std::uint64_t> cpu_begin_ns_; // a little after since_ns_
    Overrun why_ = Overrun::computed;
};

} // namespace kvmserver
