// HTTP mode: client connections are kept alive, and every request gets a clean machine.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/event_loop/listeners.hpp"
#include "src/event_loop/stop.hpp"
#include "src/http/front.hpp"
#include "src/request/scheduler.hpp"
#include "src/runner/connections/connection_source.hpp"

namespace kvmserver {

// Connects the HTTP front, which owns the clients, with the threads that own the machines. The scheduler decides which
// machine serves which request. Most requests are copied into a machine and come back as a reply without a socket
// (MemoryPeer).
class HttpMode final : private http::Upstream {
public:
    // `machines`: how many threads will call add_machine(). `listeners`: the program's. The arguments must outlive this
    // object.
    HttpMode(Listeners& listeners, const tinykvm::Limits& limits, unsigned machines);
    ~HttpMode() override;
    // Serves until `stop`, then finishes the requests in flight and ends the machines.
    void serve(const Stopper& stop);
    // Ends the machines at once; waiting requests get 503.
    void end();
    // Stops machines in the middle of a request.
    const Stopper& hard_stop() const { return hard_stop_; }
    // Adds a machine. Its thread takes requests from the returned source. Any thread.
    ConnectionSource& add_machine();

private:
    struct Request {
        std::shared_ptr<http::RequestWaiter> waiter;
        std::shared_ptr<std::atomic<request::Outcome>> outcome; // ok: as far as is known
        std::string client_ip, opening;
        bool more_follows = false;
    };
    class Machine;
    // A refusal to deliver after the mutex has been released.
    struct Refusal {
        std::shared_ptr<http::RequestWaiter> waiter;
        request::Problem problem;
    };
    using Refusals = std::vector<Refusal>;

    std::unique_ptr<http::Lease> connect(const http::RequestInfo& request,
                                         std::shared_ptr<http::RequestWaiter> waiter) override;
    IncomingConnection connection_of(Request request) const;
    void abandon(request::RequestId id);
    void look_at_the_clock();
    // Performs the scheduler's actions. The mutex is held.
    void carry_out(const request::Actions& actions, Refusals& refusals);
    void carry_out(const request::Assign& assign);
    void carry_out(const request::Refuse& refuse, Refusals& refusals);
    static void report_refusals(Refusals refusals);

    Listeners& listeners_;
    const tinykvm::Limits& limits_;
    std::uint32_t listener_ = 0;
    Stopper hard_stop_;
    std::atomic<bool> others_wait_ = false; // whether requests wait for a machine
    std::mutex mutex_;                      // guards the following
    request::Scheduler scheduler_{0};
    request::FunctionId function_; // the program
    std::uint64_t next_request_ = 1;
    std::unordered_map<request::RequestId, Request> waiting_;
    std::list<Machine> machines_;
    std::deque<request::MachineId> wanted_; // wanted by the scheduler, not yet taken by a thread
    std::condition_variable machine_wanted_;
    bool ended_ = false;
    http::Front front_; // last: its threads use the members above
};

} // namespace kvmserver
