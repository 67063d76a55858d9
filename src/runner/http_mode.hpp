// HTTP mode: client connections stay open, every request gets a clean machine.
#pragma once
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

// Between the HTTP front, which has the clients, and the workers, which have the machines. A request that finds a machine idle gets a
// connection at once, and the idle workers watch for its first byte: one thread is woken up for it, once. Others wait here.
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
    bool promise_machine();
    void break_promise();
    std::optional<Arrival> join(http::Waiter& waiter, const std::string& client_ip);
    void watch(int fd, std::uint32_t events, std::uint64_t token);
    bool watch_for_head(Arrival arrival);
    bool take_connected(std::uint64_t place, Arrival& out);
    bool take_waiting(Arrival& out);
    bool pop(Waiting& out);

    Listeners& listeners_;
    double request_seconds_;
    std::uint32_t listener_ = 0;
    Stopper hard_stop_;
    tinykvm::UniqueFd arrived_; // an eventfd that counts what is in the queue
    tinykvm::UniqueFd epoll_;   // arrived_, hard_stop_ and the connections whose request is about to come
    std::mutex mutex_;          // guards what follows
    std::deque<Waiting> queue_;
    std::vector<Arrival> connected_; // by place; without a descriptor: free
    std::size_t idle_ = 0;           // workers that wait for epoll_
    std::size_t promised_ = 0;       // to connections of which no worker knows yet; not more than idle_
    http::Front front_; // last: its threads use the rest
};

} // namespace kvmserver
