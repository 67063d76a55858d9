// A request to a function, from its arrival until its machine is clean again.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "src/daemon/function_version.hpp"
#include "src/http/upstream.hpp"
#include "src/request/problem.hpp"
#include "src/request/scheduler.hpp"
#include "src/tracing/request_trace.hpp"

namespace kvmserver::daemon {

class WorkerPool;
struct WorkerMachine;

// What the front knows, for the access log and the trace. Owns its strings.
struct AccessRecord {
    std::int64_t ms = 0; // when it ended, since 1970
    std::string request_id, traceparent, client_ip, method, host, path;
    unsigned status = 0;
    std::string outcome;
    std::uint64_t bytes_in = 0, bytes_out = 0, queue_us = 0, exec_us = 0, total_us = 0;
    std::unique_ptr<tracing::RequestTrace> trace; // null: it is not traced
};

// Members that are not const are guarded by the pool's mutex.
struct Request {
    Request(std::shared_ptr<FunctionVersion> of, std::string_view named) : version(std::move(of)), request_id(named) {}
    const std::shared_ptr<FunctionVersion> version;
    const std::string request_id;
    request::RequestId id{};
    std::shared_ptr<http::RequestWaiter> waiter; // until it is answered
    std::string client_ip, opening;              // for its machine
    bool more_follows = false;
    bool stream = false; // a connection of a TCP function, with these ports:
    std::uint16_t client_port = 0, listen_port = 0;
    bool at_listener = false;                        // WorkerPool::Incoming::at_listener
    std::weak_ptr<WorkerMachine> machine;            // while a machine has it
    request::Outcome outcome = request::Outcome::ok; // ok: as far as is known
    std::atomic<std::uint64_t> began_ns = 0;         // when a machine got it (now_ns())
    bool cold = false;                               // it waited for a process to be restored
    bool over = false;                               // its machine is clean or gone, or it never got one
    std::string forwarded_to;                        // the API of the daemon that has got it; "": none
    std::uint64_t restore_us = 0, machine_us = 0, reset_us = 0, cpu_us = 0, dirty_pages = 0;
    std::string route;                  // if it is traced: the path of the route that matched
    std::uint64_t restored_ns = 0;      // when its process became ready, if it waited for that (now_ns())
    std::uint64_t clean_ns = 0;         // when its machine said that it is clean
    std::optional<AccessRecord> record; // from the complete reply until it is written
};

// The front's handle to a request.
class RequestLease final : public http::Lease {
public:
    RequestLease(WorkerPool& pool, std::shared_ptr<Request> request) : pool_(pool), request_(std::move(request)) {}
    std::optional<request::Problem> failure() const override;
    std::string where_to_look() const override;
    std::uint64_t began_ns() const override { return request_->began_ns; }
    const std::shared_ptr<Request>& request() const { return request_; }

private:
    WorkerPool& pool_;
    std::shared_ptr<Request> request_;
};

} // namespace kvmserver::daemon
