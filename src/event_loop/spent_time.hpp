// How much of a time limit a program has used.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>

#include "tinykvm/machine/clock.hpp"

namespace kvmserver {

// Why a time limit ended a program's turn.
enum class Overrun {
    none,
    computed, // it used the CPU for most of the limit
    stuck,    // it waited for something that cannot happen: no timer, no outbound connection
    idle,     // its client neither sent nor took anything
    total,    // the request as a whole took too long
    cpu,      // the request as a whole used too much CPU time
};

// Counts the CPU time of this thread since the last progress, and the waits that count. Time in which the thread was
// runnable but not scheduled does not count, except for the `share` below. Belongs to the thread that runs the machine.
class SpentTime {
public:
    void restart(std::uint64_t now_ns) {
        since_ns_ = now_ns;
        waited_ns_ = all_waits_ns_ = 0;
        cpu_begin_ns_.reset();
    }
    // Overrun::none: the wait does not count.
    void waited(std::uint64_t ns, Overrun why) {
        all_waits_ns_ += ns;
        if (why == Overrun::none)
            return;
        waited_ns_ += ns;
        why_ = why;
    }
    // Reads the thread's CPU clock (a system call) only after kShortNs, which most requests never reach. At least
    // 1/`share` of the time between waits counts, even if the thread did not run; 0: only CPU time counts.
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
    // Which kind used more than half of `limit_ns`.
    Overrun why(std::uint64_t limit_ns) const { return waited_ns_ > limit_ns / 2 ? why_ : Overrun::computed; }

private:
    std::uint64_t since_ns_ = 0, waited_ns_ = 0, all_waits_ns_ = 0;
    std::optional<std::uint64_t> cpu_begin_ns_; // read a little after since_ns_
    Overrun why_ = Overrun::computed;
};

} // namespace kvmserver
