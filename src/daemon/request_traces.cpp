#include "src/daemon/request_traces.hpp"

#include <algorithm>
#include <chrono>

#include "src/common/clock.hpp"
#include "src/daemon/request_log.hpp"

namespace kvmserver::daemon {
namespace {

using tracing::Period;

// Bounds the memory of the exporter's queue.
constexpr std::size_t kMaxText = 256, kMaxPath = 1024;
constexpr std::size_t kMaxState = 512; // a longer tracestate is left out: part of one could be invalid

constexpr std::int64_t kNsPerUs = 1000;

std::int64_t wall_ns() {
    using namespace std::chrono;
    return duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
}

std::int64_t ns(std::uint64_t us) { return static_cast<std::int64_t>(us) * kNsPerUs; }

// The period of `us` microseconds that ended at `end`, as far as it is within `bounds`.
Period before(std::int64_t end, std::uint64_t us, const Period& bounds) {
    end = std::clamp(end, bounds.begin, bounds.end);
    const std::uint64_t most = static_cast<std::uint64_t>((end - bounds.begin) / kNsPerUs);
    return {end - ns(std::min(us, most)), end};
}

bool by_client(unsigned status) { return status >= 400 && status < 500; }

} // namespace

std::unique_ptr<tracing::RequestTrace> trace_of(const http::RequestRecord& record, const Request* request) {
    if (!record.trace || !record.trace->sampled)
        return nullptr;
    const auto text = [](std::string_view of, std::size_t most = kMaxText) { return std::string(of.substr(0, most)); };
    auto out = std::make_unique<tracing::RequestTrace>();
    out->trace_id = record.trace->trace_id;
    out->span_id = record.trace->span_id;
    out->parent_id = record.trace->parent_id;
    if (record.trace->state.size() <= kMaxState)
        out->state = record.trace->state;
    out->method = record.method;
    out->host = text(record.host);
    out->path = text(record.path.substr(0, record.path.find('?')), kMaxPath);
    out->scheme = record.secure ? "https" : "http";
    out->client = record.client_ip;
    out->user_agent = text(record.head->find("user-agent"));
    out->request_id = record.request_id;
    out->outcome = request::log_word(record.outcome);
    out->status = record.status;
    out->minor_version = record.head->minor_version;
    out->failed = failed(record.status, record.outcome) && !by_client(record.status);
    const std::int64_t end =
        wall_ns() - (std::chrono::steady_clock::now() - record.ended) / std::chrono::nanoseconds(1);
    out->request = {end - ns(record.total_us), end};
    if (!request)
        return out;
    out->function = request->version->facts().function;
    out->version = request->version->facts().version;
    out->route = text(request->route);
    out->cold = request->cold;
    const std::int64_t asked = out->request.begin + ns(record.head_us);
    out->queue = {asked, std::min(asked + ns(record.queue_us), end)};
    if (request->began_ns != 0) {
        out->execute = {std::max(end - ns(record.exec_us), asked), end};
        out->queue->end = out->execute->begin; // the same moment, but for rounding
    }
    return out;
}

void complete(tracing::RequestTrace& trace, const Request& request) {
    const std::int64_t offset = wall_ns() - static_cast<std::int64_t>(now_ns());
    const auto wall = [&](std::uint64_t steady) { return static_cast<std::int64_t>(steady) + offset; };
    if (request.restored_ns != 0 && trace.queue)
        trace.restore = before(wall(request.restored_ns), request.restore_us, *trace.queue);
    if (request.clean_ns != 0 && trace.execute) {
        const std::int64_t clean = std::max(wall(request.clean_ns), trace.execute->begin);
        trace.reset = before(clean, request.reset_us, {trace.execute->begin, clean});
        trace.cpu_us = request.cpu_us;
        trace.dirty_pages = request.dirty_pages;
    }
}

} // namespace kvmserver::daemon
