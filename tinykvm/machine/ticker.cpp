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

// One per thread that runs machines.
struct Seat {
    std::atomic<kvm::Vcpu*> vcpu{nullptr}; // the signal handler requests its exit
    std::atomic<std::uint64_t> entries{0}; // odd while the machine runs
    std::atomic<bool> soon{false};         // kick after one look instead of a whole tick
    std::uint64_t seen = 0;                // for the ticker: `entries` at its last look
    unsigned looks = 0;                    // for the ticker: number of looks since `entries` changed
    pthread_t thread{};
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
        static Ticker* const ticker = new Ticker; // never destroyed, because its thread is never joined
        return *ticker;
    }

    void add(std::shared_ptr<Seat> seat) {
        const std::lock_guard lock(mutex_);
        seats_.push_back(std::move(seat));
    }

    // Call this when a vCPU begins to run, after its seat was updated.
    void wake() {
        if (asleep_.load() && asleep_.exchange(false))
            asleep_.notify_one();
    }

    // Call this when the seat's thread ends: it is not signalled any more after this.
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
            if (kick_overdue())
                quiet_ticks_ = 0;
            else if (++quiet_ticks_ > kQuietTicks)
                sleep();
        }
    }

    // Kicks the vCPUs that have run for a whole tick. Those with `soon` are kicked when they have run since the last
    // look: the program may have left output before it began to compute. Returns whether any vCPU ran since then.
    bool kick_overdue() {
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

    // Sleeps until a vCPU runs again, so that hundreds of idle functions cost nothing.
    void sleep() {
        asleep_ = true;
        if (!kick_overdue()) // a vCPU that began to run before asleep_ was set has not called notify_one()
            asleep_.wait(true);
        asleep_ = false;
        quiet_ticks_ = 0;
    }

    static constexpr unsigned kLooks = 5;  // per tick
    static constexpr int kQuietTicks = 50; // looks, 0.1 s: under load the ticker stays awake and needs no wake-ups
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
    // Sequentially consistent: this store comes before wake() reads asleep_. The ticker does the same in reverse.
    owner.seat->entries.fetch_add(1);
    Ticker::instance().wake();
}

RunningVcpu::~RunningVcpu() {
    this_seat->entries.fetch_add(1, std::memory_order_relaxed);
    this_seat->vcpu.store(nullptr, std::memory_order_relaxed);
}

} // namespace tinykvm
