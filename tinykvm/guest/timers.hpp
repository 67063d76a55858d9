// Clocks, and declarations shared by the files that implement timers.
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

// The meaning of a clock id.
enum class ClockKind : u8 { none, realtime, monotonic, boottime, process_cpu, thread_cpu };
struct Clock {
    ClockKind kind = ClockKind::none;
    u32 tid = 0; // thread_cpu only
    bool is_cpu() const { return kind >= ClockKind::process_cpu; }
};
Clock clock_of(i32 id); // kind none: EINVAL
// The id names a clock device by descriptor (FD_TO_CLOCKID). There are none.
inline bool is_file_clock(i32 id) { return id < 0 && (id & 7) == 3; }
u64 now_of(const Clock&);                                    // ns; 0 for a thread that has ended
u64 expiry_of(const Clock&, bool absolute, const Timespec&); // as a deadline; a time in the past becomes now
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

// For each kind of timer: next_* returns when the earliest is due (guest monotonic time, 0 for now, kNever for none),
// and fire_* expires those that are due.
u64 next_timerfd();
void fire_timerfds();
u64 next_interval_timer();
void fire_interval_timers(u64 now);
u64 next_posix_timer();
void fire_posix_timers();
// A new process has none of its parent's.
void drop_posix_timers();
void stop_interval_timers();

// --- signals of POSIX timers (between signal.cpp and posix_timers.cpp) ---------------------------
struct TimerSignal {
    u32 timer, serial;
};
// Called when a timer's signal leaves the queue. Returns the overrun count: how often the timer expired since the
// signal was queued. Restarts the timer.
u32 timer_signal_taken(const TimerSignal&);
enum class Queued { yes, ignored, no };
// Queues a timer's signal for a thread, or for the process if `to` is null.
Queued send_timer_signal(Thread* to, const SigInfo&, const TimerSignal&);
void signal_action_changed(i32 signal); // restarts timers that stopped because the signal was ignored

} // namespace gk
