// A version of a function, whether a process serves it now or not, and the requests to it.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "src/common/digest.hpp"
#include "src/daemon/function_settings.hpp"
#include "src/http/upstream.hpp"
#include "src/request/scheduler.hpp"

namespace kvmserver::daemon {

class Target;
class WorkerPool;
struct WorkerMachine;

// What the access log says of a request that the front knows; strings of its own.
struct AccessRecord {
    std::int64_t ms = 0; // when it ended, since 1970
    std::string request_id, traceparent, client_ip, method, host, path;
    unsigned status = 0;
    std::string outcome;
    std::uint64_t bytes_in = 0, bytes_out = 0, queue_us = 0, exec_us = 0, total_us = 0;
};

// One request, from its arrival until its machine is clean again. What is not const is the pool's, under its mutex.
struct Job {
    Job(std::shared_ptr<Target> of, std::string_view named) : target(std::move(of)), request_id(named) {}
    const std::shared_ptr<Target> target;
    const std::string request_id;
    request::RequestId id{};
    std::shared_ptr<http::RequestWaiter> waiter; // until it has its answer
    std::string client_ip, opening;              // for its machine
    bool more_follows = false;
    std::weak_ptr<WorkerMachine> machine;            // while it is in one
    request::Outcome outcome = request::Outcome::ok; // as far as is known
    std::atomic<std::uint64_t> began_ns = 0;         // when a machine had it (now_ns())
    bool cold = false;                               // it waited for a process to be restored
    bool over = false;                               // its machine is clean, or gone, or it never got one
    std::uint64_t restore_us = 0, machine_us = 0, reset_us = 0, cpu_us = 0, dirty_pages = 0;
    std::optional<AccessRecord> record; // once the reply is complete, until it is written
};

class Target {
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
    friend class WorkerPool;
    const Facts facts_;
    // Under the pool's mutex:
    std::optional<request::FunctionId> id_; // the scheduler's; none: it does not know it
    std::string last_failure_;
};

// What the front holds of a request.
class JobLease final : public http::Lease {
public:
    JobLease(WorkerPool& pool, std::shared_ptr<Job> job) : pool_(pool), job_(std::move(job)) {}
    std::optional<request::Problem> failure() const override;
    std::uint64_t began_ns() const override { return job_->began_ns; }
    const std::shared_ptr<Job>& job() const { return job_; }

private:
    WorkerPool& pool_;
    std::shared_ptr<Job> job_;
};

} // namespace kvmserver::daemon
