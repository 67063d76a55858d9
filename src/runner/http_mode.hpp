// HTTP mode: client connections stay open, every request gets a clean machine.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "src/http/front.hpp"
#include "src/runner/arrivals.hpp"
#include "src/runner/setup.hpp"
#include "src/runner/stop.hpp"

namespace kvmserver {

// Between the HTTP front, which has the clients, and the workers, which have the machines. A request waits in one queue
// until a machine is free, and most then go into the machine and come back as a reply without a socket (MemoryPeer).
class HttpMode final : public ArrivalSource, private http::Upstream {
public:
    HttpMode(const Setup& setup, const Options& options);
    // Serves until SIGTERM or SIGINT and then finishes what is in flight; the workers stop after that.
    void serve();
    // Ends the workers at once; what waits gets 503.
    void end();
    // Stops machines in the middle of a request.
    const Stopper& hard_stop() const { return hard_stop_; }

    bool next(Arrival& out) override;

private:
    struct Waiting {
        std::shared_ptr<http::RequestWaiter> waiter;
        std::string client_ip, opening;
        bool more_follows = false;
        std::uint64_t since_ns = 0;
    };
    void connect(const http::RequestInfo& request, std::shared_ptr<http::RequestWaiter> waiter) override;
    Arrival arrival_of(Waiting request) const;
    void give_up_late_ones();

    Listeners& listeners_;
    const tinykvm::Limits& limits_;
    std::uint32_t listener_ = 0;
    Stopper hard_stop_;
    std::mutex mutex_; // guards what follows
    std::condition_variable changed_;
    std::deque<Waiting> queue_;             // the oldest first
    std::atomic<bool> others_wait_ = false; // in the queue
    bool ended_ = false;
    http::Front front_; // last: its threads use the rest
};

} // namespace kvmserver
