// What Service keeps of requests and connections that have ended: metrics, logs, traces.
#include "src/common/clock.hpp"
#include "src/daemon/request_traces.hpp"
#include "src/daemon/service.hpp"

namespace kvmserver::daemon {
namespace {

const RequestLease* lease_of(const http::RequestRecord& record) {
    return static_cast<const RequestLease*>(record.lease);
}

} // namespace

void Service::finished(const http::RequestRecord& record) {
    const RequestLease* const lease = lease_of(record);
    AccessRecord out;
    out.ms = now_ms();
    out.status = record.status;
    out.bytes_in = record.bytes_in;
    out.bytes_out = record.bytes_out;
    out.queue_us = record.queue_us;
    out.exec_us = record.exec_us;
    out.total_us = record.total_us;
    count(out, record.outcome, lease ? lease->request().get() : nullptr);
    if (lease)
        log(out, record.outcome, *lease->request(), record.method, record.path);
    if (traces_)
        out.trace = trace_of(record, lease ? lease->request().get() : nullptr);
    if (!access_log_.wanted() && !out.trace)
        return;
    out.request_id = record.request_id;
    out.traceparent = record.traceparent;
    out.client_ip = record.client_ip;
    out.method = record.method;
    out.host = record.host;
    out.path = record.path;
    out.outcome = request::log_word(record.outcome);
    if (lease)
        pool_.record(lease->request(), std::move(out));
    else
        write(out, nullptr);
}

void Service::write(AccessRecord& record, const Request* request) {
    access_log_.write(record, request);
    if (!record.trace)
        return;
    if (request)
        complete(*record.trace, *request);
    traces_->add(std::move(*record.trace));
}

// A connection of a TCP function.
void Service::finished(const TcpRecord& record) {
    AccessRecord out;
    out.ms = now_ms();
    out.request_id = record.request_id;
    out.client_ip = record.client_ip;
    out.method = record.passed_tls ? "TLS" : "TCP";
    out.path = record.address;
    out.outcome = request::log_word(record.outcome);
    out.bytes_in = record.bytes_in;
    out.bytes_out = record.bytes_out;
    out.queue_us = record.queue_us;
    out.exec_us = record.exec_us;
    out.total_us = record.total_us;
    metrics_.count(record.function, record.version ? record.version->facts().version : 0, [&](VersionMetrics& m) {
        ++m.connections[out.outcome];
        m.duration.add(record.total_us);
        m.queue.add(record.queue_us);
        m.bytes_in += record.bytes_in;
        m.bytes_out += record.bytes_out;
        count_outcome(m, record.outcome, record.request.get());
    });
    if (record.version)
        record.version->requests(logs_.requests())
            .add({out.ms, record.version->facts().version, 0, record.outcome, record.total_us, out.method, out.path,
                  out.request_id});
    if (!access_log_.wanted())
        return;
    if (record.request)
        pool_.record(record.request, std::move(out));
    else
        access_log_.write(out, nullptr);
}

void Service::log(const AccessRecord& record, request::Outcome outcome, const Request& request, std::string_view method,
                  std::string_view target) {
    const FunctionVersion::Facts& facts = request.version->facts();
    // Queries are not kept: they hold more secrets than paths.
    request.version->requests(logs_.requests())
        .add({record.ms, facts.version, record.status, outcome, record.total_us, method,
              target.substr(0, target.find('?')), request.request_id});
}

void Service::refused(http::Refusal why) {
    metrics_.count("", 0, [&](VersionMetrics& m) { ++m.rejected[std::string(http::to_string(why))]; });
}

void Service::count(const AccessRecord& record, request::Outcome outcome, const Request* request) {
    using request::Outcome;
    const auto change = [&](VersionMetrics& m) {
        ++m.requests[record.status];
        m.duration.add(record.total_us);
        m.queue.add(record.queue_us);
        m.bytes_in += record.bytes_in;
        m.bytes_out += record.bytes_out;
        count_outcome(m, outcome, request);
    };
    if (request)
        metrics_.count(request->version->facts().function, request->version->facts().version, change);
    else
        metrics_.count("", 0, change);
}

void Service::count_outcome(VersionMetrics& m, request::Outcome outcome, const Request* request) {
    using request::Outcome;
    m.timeouts += request::by_time_limit(outcome);
    if (request)
        m.cold_starts += request->cold;
    if (request::had_no_machine(outcome))
        ++m.rejected[std::string(request::code_of(outcome))];
    else if (outcome == Outcome::client_slow)
        ++m.rejected["slow-client"];
    else if (outcome == Outcome::refused && !request)
        ++m.rejected["bad-request"];
    else if (outcome == Outcome::client_timeout && !request)
        ++m.rejected["header-timeout"];
    else if (outcome == Outcome::no_progress || outcome == Outcome::over_total || outcome == Outcome::over_cpu ||
             outcome == Outcome::out_of_memory)
        ++m.faults[std::string(request::code_of(outcome))];
    else if (outcome == Outcome::program_failed || outcome == Outcome::worker_died || outcome == Outcome::bad_reply)
        ++m.faults["program-failed"];
}

} // namespace kvmserver::daemon
