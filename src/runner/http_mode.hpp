// HTTP mode: client connections stay open, every request gets a clean machine.
#pragma once
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "src/http/front.hpp"
#include "src/runner/arrivals.hpp"
#include "src/runner/setup.hpp"
#include "src/runner/stop.hpp"

namespace kvmserver {

// Between the HTTP front, which has the clients, and the workers, which have the machines: each request waits here for a free
// machine and is then connected to it.
class HttpMode final : public ArrivalSource, private http::Upstream {
public:
    HttpMode(const Setup& setup, const Options& options);
    // Serves until SIGTERM or SIGINT and then finishes what is in flight; the workers stop after that.
    void serve();
    // Stops machines in the middle of a request.
    const Stopper& hard_stop() const { return hard_stop_; }

    bool next(Arrival& out) override;

private:
    struct Waiting {
        std::shared_ptr<http::Waiter> waiter;
        std::string client_ip;
    };
    void connect(const http::RequestInfo& request, std::shared_ptr<http::Waiter> waiter) override;
    bool pop(Waiting& out);

    Listeners& listeners_;
    double request_seconds_;
    std::uint32_t listener_ = 0;
    Stopper hard_stop_;
    tinykvm::UniqueFd arrived_; // an eventfd that counts what is in the queue
    std::mutex mutex_;
    std::deque<Waiting> queue_;
    http::Front front_; // last: its threads use the rest
};

} // namespace kvmserver
