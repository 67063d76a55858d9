// A version of a function, whether a process serves it now or not, and the requests to it.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "src/common/digest.hpp"
#include "src/daemon/function_settings.hpp"
#include "src/http/upstream.hpp"
#include "src/link/machine_link.hpp"

namespace kvmserver::daemon {

class Target;
class Supervisor;
struct RunningProcess;
struct RequestMachineSlot;

// What the access log says of a request that the front knows; strings of its own.
struct AccessRecord {
    std::int64_t ms = 0; // when it ended, since 1970
    std::string request_id, traceparent, client_ip, method, host, path;
    unsigned status = 0;
    std::string outcome;
    std::uint64_t bytes_in = 0, bytes_out = 0, queue_us = 0, exec_us = 0, total_us = 0;
};

// One request, from its arrival until its machine is clean again. What is not const is the supervisor's,
// under its mutex.
struct Job {
    Job(std::shared_ptr<Target> of, std::string_view id) : target(std::move(of)), request_id(id) {}
    const std::shared_ptr<Target> target;
    const std::string request_id;
    std::weak_ptr<RequestMachineSlot> slot;          // while it is in a machine
    request::Outcome outcome = request::Outcome::ok; // as far as is known
    bool cold = false;                               // it waited for a process to be restored
    bool over = false;                               // its machine is clean, or gone, or it never got one
    std::uint64_t restore_us = 0, machine_us = 0, reset_us = 0, cpu_us = 0, dirty_pages = 0;
    std::optional<AccessRecord> record; // once the reply is complete, until it is written
};

// A request that waits for a machine.
struct Waiting {
    std::shared_ptr<Job> job;
    std::shared_ptr<http::Waiter> waiter;
    std::string client_ip;
    std::uint64_t since_ns = 0, deadline_ns = 0; // 0: none
};

class Target : public std::enable_shared_from_this<Target> {
public:
    struct Facts {
        std::string name; // "hello v4"
        std::string function;
        std::uint64_t version = 0;
        Digest snapshot;
        unsigned min = 0, max = 1; // request machines
        std::uint64_t idle_ns = 0; // after so long without a request they are given up
        unsigned queue = 0;
        std::uint64_t queue_ns = 0;
        std::string after_restore; // path of the hook; "": none
        Values values;
        std::string ceilings; // what it is granted at most (ceilings_text)
        std::string tenant;   // whose copies of unpacked pages it gets
    };
    explicit Target(Facts facts) : facts_(std::move(facts)) {}
    const Facts& facts() const { return facts_; }

private:
    friend class Supervisor;
    const Facts facts_;
    // Under the supervisor's mutex:
    std::shared_ptr<RunningProcess> process_; // that takes requests; null: none
    std::deque<Waiting> queue_;
    bool starting_ = false; // the starter has it
    bool starved_ = false;  // it waits for others to give up machines
    bool retired_ = false;  // no route leads here any more
    bool active_ = false;   // the supervisor looks after it
    unsigned failures_ = 0; // one after the other
    std::uint64_t retry_at_ns_ = 0;
    std::uint64_t last_used_ns_ = 0;
    std::uint64_t in_flight_ = 0;
    std::uint64_t starts_ = 0;
    std::string last_failure_;
};

// What the front holds of a request.
class JobLease final : public http::Lease {
public:
    JobLease(Supervisor& supervisor, std::shared_ptr<Job> job) : supervisor_(supervisor), job_(std::move(job)) {}
    std::optional<request::Problem> failure() const override;
    const std::shared_ptr<Job>& job() const { return job_; }

private:
    Supervisor& supervisor_;
    std::shared_ptr<Job> job_;
};

} // namespace kvmserver::daemon
