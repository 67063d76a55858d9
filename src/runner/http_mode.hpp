// HTTP mode: client connections stay open, every request gets a clean machine.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/http/front.hpp"
#include "src/runner/arrivals.hpp"
#include "src/runner/setup.hpp"
#include "src/runner/stop.hpp"

namespace kvmserver {

// Between the HTTP front, which has the clients, and the workers, which have the machines. Two requests for each machine get a connection
// before one is free, and their heads come to lie in it: a free machine finds them there. Others wait in a queue.
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
    // A request that has a connection and no machine yet.
    struct Connected {
        Arrival arrival; // without a descriptor: this place is free
        std::uint64_t since_ns = 0;
        std::uint32_t turn = 0; // tells it from those that had the place before
    };
    void connect(const http::RequestInfo& request, std::shared_ptr<http::Waiter> waiter) override;
    std::optional<Arrival> join(http::Waiter& waiter, const std::string& client_ip);
    bool watch_for_head(Arrival arrival);
    void connect_waiting();
    bool take(std::uint64_t token, std::uint32_t events, Arrival& out);
    void give_up_late_ones();

    Listeners& listeners_;
    double request_seconds_;
    std::uint32_t listener_ = 0;
    Stopper hard_stop_;
    const std::size_t most_ahead_;
    const std::uint64_t patience_ns_; // with which a request waits for a machine
    tinykvm::UniqueFd epoll_; // hard_stop_ and what is in connected_
    std::mutex mutex_;        // guards what follows
    std::deque<Waiting> queue_;
    std::size_t ahead_ = 0;     // requests that have a connection, or are about to get one, and no machine yet
    std::vector<Connected> connected_;
    http::Front front_; // last: its threads use the rest
};

} // namespace kvmserver
