#include "tinykvm/machine/ticker.hpp"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tinykvm/base/error.hpp"

namespace tinykvm {
namespace {

// One a thread that runs machines. `vcpu` is what the signal handler pokes.
struct Seat {
    std::atomic<kvm::Vcpu*> vcpu{nullptr};
    std::atomic<std::uint64_t> entries{0}; // odd while the machine runs
    std::atomic<bool> soon{false};         // kick after one look, not only after a whole tick
    std::uint64_t seen = 0;                // the ticker's
    unsigned looks = 0;                    // at the same entry
    pthread_t thread{};
    std::atomic<bool> gone{false};
};

thread_local Seat* this_seat = nullptr;

int kick_signal() { return SIGRTMIN + 3; }

void on_signal(int) {
    if (Seat* seat = this_seat)
        if (kvm::Vcpu* vcpu = seat->vcpu.load(std::memory_order_relaxed))
            vcpu->request_exit();
}

class Ticker {
public:
    static Ticker& instance() {
        static Ticker* const ticker = new Ticker; // lives as long as the process: its thread is never joined
        return *ticker;
    }

    void add(std::shared_ptr<Seat> seat) {
        const std::lock_guard lock(mutex_);
        seats_.push_back(std::move(seat));
    }

    // A vCPU begins to run, its seat says so already.
    void wake() {
        if (asleep_.load() && asleep_.exchange(false))
            asleep_.notify_one();
    }

    // The seat's thread ends: after this it is not signalled any more.
    void remove(Seat* seat) {
        const std::lock_guard lock(mutex_);
        std::erase_if(seats_, [&](const auto& s) { return s.get() == seat; });
    }

private:
    Ticker() {
        struct sigaction action {};
        action.sa_handler = on_signal; // no SA_RESTART: KVM_RUN must return
        sigemptyset(&action.sa_mask);
        if (::sigaction(kick_signal(), &action, nullptr) < 0)
            throw_errno("sigaction");
        std::thread([this] { loop(); }).detach();
    }

    void loop() {
        sigset_t all;
        sigfillset(&all);
        ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
        for (;;) {
            timespec pause{0, static_cast<long>(kTickNs / kLooks)};
            ::nanosleep(&pause, nullptr);
            if (look())
                quiet_ticks_ = 0;
            else if (++quiet_ticks_ > kQuietTicks)
                sleep();
        }
    }

    // Whether a vCPU ran since the last time. Kicks those that have run for a whole tick, or from one look to the next
    // when they came from their machine's host: what the program said before it computes is to leave.
    bool look() {
        bool ran = false;
        const std::lock_guard lock(mutex_);
        for (const auto& seat : seats_) {
            const std::uint64_t now = seat->entries.load();
            seat->looks = now == seat->seen ? seat->looks + 1 : 0;
            if ((now & 1) != 0 && seat->looks >= (seat->soon.load(std::memory_order_relaxed) ? 1 : kLooks))
                ::pthread_kill(seat->thread, kick_signal());
            ran |= (now & 1) != 0 || now != seat->seen;
            seat->seen = now;
        }
        return ran;
    }

    // Until a vCPU runs again: hundreds of idle functions must cost nothing.
    void sleep() {
        asleep_ = true;
        if (!look()) // who began before this was set does not wake
            asleep_.wait(true);
        asleep_ = false;
        quiet_ticks_ = 0;
    }

    static constexpr unsigned kLooks = 5;  // in a tick
    static constexpr int kQuietTicks = 50; // a tenth of a second: under load nobody has to wake anybody
    std::atomic<bool> asleep_ = false;
    int quiet_ticks_ = 0;
    std::mutex mutex_;
    std::vector<std::shared_ptr<Seat>> seats_;
};

// Owned by its thread; leaves the ticker when the thread ends.
struct SeatOwner {
    std::shared_ptr<Seat> seat = std::make_shared<Seat>();
    SeatOwner() {
        seat->thread = ::pthread_self();
        this_seat = seat.get();
        Ticker::instance().add(seat);
    }
    ~SeatOwner() {
        Ticker::instance().remove(seat.get());
        this_seat = nullptr;
    }
};

} // namespace

RunningVcpu::RunningVcpu(kvm::Vcpu& vcpu, bool soon) {
    thread_local SeatOwner owner;
    owner.seat->soon.store(soon, std::memory_order_relaxed);
    owner.seat->vcpu.store(&vcpu, std::memory_order_relaxed);
    owner.seat->entries.fetch_add(1); // ordered before the look at the ticker, as its own are the other way round
    Ticker::instance().wake();
}

RunningVcpu::~RunningVcpu() {
    this_seat->entries.fetch_add(1, std::memory_order_relaxed);
    this_seat->vcpu.store(nullptr, std::memory_order_relaxed);
}

} // namespace tinykvm
