// HTTP mode: client connections stay open, every request gets a clean machine.
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

// Between the HTTP front, which has the clients, and the threads that have the machines. The scheduler says which
// machine serves which request; most requests go into a machine and come back as a reply without a socket (MemoryPeer).
class HttpMode final : private http::Upstream {
public:
    // With so many machines: one add_machine() each. `listeners`: the program's. All must outlive it.
    HttpMode(Listeners& listeners, const tinykvm::Limits& limits, unsigned machines);
    ~HttpMode() override;
    // Serves until `stop` and then finishes what is in flight; the machines end after that.
    void serve(const Stopper& stop);
    // Ends the machines at once; what waits gets 503.
    void end();
    // Stops machines in the middle of a request.
    const Stopper& hard_stop() const { return hard_stop_; }
    // For one more machine: where its thread gets its clients from. Any thread.
    ConnectionSource& add_machine();

private:
    struct Request {
        std::shared_ptr<http::RequestWaiter> waiter;
        std::shared_ptr<std::atomic<request::Outcome>> outcome; // ok: as far as is known
        std::string client_ip, opening;
        bool more_follows = false;
    };
    class Machine;
    // What waiters are told once the mutex is not held any more.
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
    // With the mutex held: does what the scheduler says.
    void carry_out(const request::Actions& actions, Refusals& refusals);
    void carry_out(const request::Assign& assign);
    void carry_out(const request::Refuse& refuse, Refusals& refusals);
    static void tell(Refusals refusals);

    Listeners& listeners_;
    const tinykvm::Limits& limits_;
    std::uint32_t listener_ = 0;
    Stopper hard_stop_;
    std::atomic<bool> others_wait_ = false; // for a machine
    std::mutex mutex_;                      // guards what follows
    request::Scheduler scheduler_{0};
    request::FunctionId function_; // the program
    std::uint64_t next_request_ = 1;
    std::unordered_map<request::RequestId, Request> waiting_;
    std::list<Machine> machines_;
    std::deque<request::MachineId> wanted_; // by the scheduler, and no thread has them yet
    std::condition_variable machine_wanted_;
    bool ended_ = false;
    http::Front front_; // last: its threads use the rest
};

} // namespace kvmserver
