// One thread of the front: its io_context, its connections and its counters.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>

#include <boost/asio/executor_work_guard.hpp>

#include "src/http/connection.hpp"
#include "src/http/ids.hpp"
#include "src/http/late_look.hpp"
#include "src/http/observer.hpp"
#include "src/http/options.hpp"
#include "src/http/passthrough.hpp"
#include "src/http/stack_pool.hpp"

namespace kvmserver::http {

// Shared by all threads of a front.
struct Shared {
    Shared(const Options& with, Upstream& asks, Observer* tells) : options(with), upstream(asks), observer(tells) {}
    const Options options;
    Upstream& upstream;
    Observer* observer;
    Passthrough passthrough; // set before the start
    std::atomic<bool> draining = false;
    std::mutex mutex; // for `gone` only
    std::condition_variable gone;
};

class Worker {
public:
    explicit Worker(Shared& shared);
    ~Worker();
    void start();
    // Any thread:
    void deal(Accepted client);
    void drain();
    void stop();
    void add_counters(Counters& sum) const;
    std::uint64_t open_connections() const {
        // Read first, so that it is never above `dealt`.
        const std::uint64_t closed = counters_.closed.load(std::memory_order_acquire);
        return counters_.dealt.load(std::memory_order_acquire) - closed;
    }

    // On its own thread:
    asio::io_context& io() { return io_; }
    const Options& options() const { return shared_.options; }
    Upstream& upstream() { return shared_.upstream; }
    const Passthrough& passthrough() const { return shared_.passthrough; }
    Ids& ids() { return ids_; }
    LateLook& late_look() { return late_look_; }
    bool draining() const { return shared_.draining.load(std::memory_order_relaxed); }
    const std::atomic<bool>& draining_flag() const { return shared_.draining; }
    void spawn(std::function<void(Yield)> coroutine);
    void add(Connection& connection);
    void remove(Connection& connection);
    void refused(Refusal why) {
        if (shared_.observer)
            shared_.observer->refused(why);
    }
    void began() { bump(counters_.in_flight, 1); }
    void finished(const RequestRecord& record);

private:
    using Cell = std::atomic<std::uint64_t>;
    // Written by this thread only (`dealt` by the accepting one) and read by any: no atomic read-modify-write is
    // needed.
    struct alignas(64) Cells {
        Cell closed{0}, requests{0}, in_flight{0}, bytes_in{0}, bytes_out{0};
        Cell by_outcome[kOutcomes]{}, by_class[6]{};
        alignas(64) Cell dealt{0};
    };
    static void bump(Cell& cell, std::uint64_t by) {
        cell.store(cell.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
    }

    Shared& shared_;
    StackPool stacks_; // must outlive what io_ holds
    asio::io_context io_;
    asio::executor_work_guard<Executor> guard_;
    LateLook late_look_{io_};
    Ids ids_;
    Cells counters_;
    std::unordered_set<Connection*> connections_;
    std::thread thread_;
};

} // namespace kvmserver::http
