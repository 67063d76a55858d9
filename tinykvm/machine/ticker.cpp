#include "tinykvm/machine/ticker.hpp"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "tinykvm/base/error.hpp"

namespace tinykvm {
namespace {

constexpr long kTimerNs = 3'000'000; // of CPU time: noticed at the next tick of the host

// The machine that this thread runs, or null. For the signal handler, which interrupts the same thread.
thread_local std::atomic<kvm::Vcpu*> vcpu_here{nullptr};

int tick_signal() { return SIGRTMIN + 3; }

// Also makes KVM_RUN return at once if the signal comes just before it.
void on_signal(int) {
    if (kvm::Vcpu* const vcpu = vcpu_here.load(std::memory_order_relaxed))
        vcpu->request_exit();
}

void handle_signal() {
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART; // KVM_RUN returns all the same
    sigemptyset(&action.sa_mask);
    if (::sigaction(tick_signal(), &action, nullptr) < 0)
        throw_errno("sigaction");
}

// The timer of one thread, which is the one that makes it.
class Timer {
public:
    Timer() {
        vcpu_here.store(nullptr); // its memory is there before the first signal
        [[maybe_unused]] static const bool handled = (handle_signal(), true);
        sigevent event{};
        event.sigev_notify = SIGEV_THREAD_ID;
        event.sigev_signo = tick_signal();
        event._sigev_un._tid = ::gettid(); // glibc 2.36 has no other name for it
        if (::timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer_) < 0)
            throw_errno("timer_create (RLIMIT_SIGPENDING, `ulimit -i`, limits the timers of a user)");
        const itimerspec often{{0, kTimerNs}, {0, kTimerNs}};
        if (::timer_settime(timer_, 0, &often, nullptr) < 0) {
            ::timer_delete(timer_);
            throw_errno("timer_settime");
        }
    }
    ~Timer() { ::timer_delete(timer_); }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

private:
    timer_t timer_{};
};

} // namespace

RunningVcpu::RunningVcpu(kvm::Vcpu& vcpu) {
    thread_local const Timer timer;
    vcpu_here.store(&vcpu, std::memory_order_relaxed);
}

RunningVcpu::~RunningVcpu() { vcpu_here.store(nullptr, std::memory_order_relaxed); }

} // namespace tinykvm
