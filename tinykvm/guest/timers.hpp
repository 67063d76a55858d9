// Clocks and what the files of timers share.
#pragma once
#include "tinykvm/guest/kernel.hpp"

namespace gk {

enum ClockId : i32 {
    kRealtime = 0,
    kMonotonic = 1,
    kProcessCpu = 2,
    kThreadCpu = 3,
    kMonotonicRaw = 4,
    kRealtimeCoarse = 5,
    kMonotonicCoarse = 6,
    kBoottime = 7,
    kRealtimeAlarm = 8,
    kBoottimeAlarm = 9,
    kTai = 11
};

// What a clock id names.
enum class ClockKind : u8 { none, realtime, monotonic, boottime, process_cpu, thread_cpu };
struct Clock {
    ClockKind kind = ClockKind::none;
    u32 tid = 0; // of thread_cpu
    bool is_cpu() const { return kind >= ClockKind::process_cpu; }
};
Clock clock_of(i32 id);                                               // kind none: EINVAL
inline bool is_file_clock(i32 id) { return id < 0 && (id & 7) == 3; } // of a descriptor (FD_TO_CLOCKID): there are none
u64 now_of(const Clock&);                                             // ns; of a thread that has ended 0
u64 expiry_of(const Clock&, bool absolute, const Timespec&);          // a deadline; what is past is now
inline u64 earlier(u64 a, u64 b) { return b < a ? b : a; }

struct Timeval {
    i64 sec, usec;
};
inline bool valid(const Timeval& t) { return t.sec >= 0 && t.usec >= 0 && t.usec < 1'000'000; }
u64 to_ns(const Timeval& t); // saturating
inline Timeval to_timeval(u64 ns) {
    return {static_cast<i64>(ns / 1'000'000'000), static_cast<i64>(ns % 1'000'000'000 / 1000)};
}
struct ItimerSpec {
    Timespec interval, value;
};

// Each kind of timer: when the earliest of them is due (guest monotonic time, 0 for now, kNever for none), and what is
// due by now.
u64 next_timerfd();
void fire_timerfds();
u64 next_interval_timer();
void fire_interval_timers(u64 now);
u64 next_posix_timer();
void fire_posix_timers();

// --- signals of POSIX timers (signal.cpp asks, posix_timers.cpp knows) ---------------------------
struct TimerSignal {
    u32 timer, serial;
};
// A queued signal of a timer leaves the queue: how often the timer ran out since it was queued. The timer goes on.
u32 timer_signal_taken(const TimerSignal&);
enum class Queued { yes, ignored, no };
// To one thread, or to the process (null).
Queued send_timer_signal(Thread* to, const SigInfo&, const TimerSignal&);
void signal_action_changed(i32 signal); // timers whose signal was ignored go on

} // namespace gk
