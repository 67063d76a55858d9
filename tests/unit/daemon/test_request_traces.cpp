// From what the daemon knows of a request to its trace: whatever a function's process reports, no period leaves the
// bounds that the daemon measured.
#include "src/daemon/request_traces.hpp"

#include <chrono>
#include <limits>

#include "src/common/clock.hpp"
#include "tests/catch.hpp"

using namespace kvmserver;
using daemon::Request;
using daemon::trace_of;
using tracing::Period;
using tracing::RequestTrace;

namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

struct Sample {
    Sample() {
        trace.sampled = true;
        trace.trace_id = std::string(32, 'a');
        trace.span_id = std::string(16, 'b');
        head.minor_version = 1;
        record.trace = &trace;
        record.head = &head;
        record.method = "GET";
        record.path = "/x?secret";
        record.status = 200;
        record.total_us = 10'000;
        record.head_us = 1000;
        record.queue_us = 3000;
        record.exec_us = 6000;
        record.ended = std::chrono::steady_clock::now();
        daemon::FunctionVersion::Facts facts;
        facts.function = "hello";
        facts.version = 3;
        request = std::make_unique<Request>(std::make_shared<daemon::FunctionVersion>(std::move(facts)), "id");
        const std::uint64_t now = now_ns();
        request->began_ns = now - 6'000'000;
        request->restored_ns = now - 6'500'000;
        request->clean_ns = now + 200'000;
        request->cold = true;
        request->restore_us = 2000;
        request->reset_us = 150;
    }
    http::Trace trace;
    http::RequestHead head;
    http::RequestRecord record;
    std::unique_ptr<Request> request;
};

std::int64_t length(const std::optional<Period>& period) {
    REQUIRE(period);
    return period->end - period->begin;
}

bool within(const std::optional<Period>& inner, const Period& outer) {
    REQUIRE(inner);
    return outer.begin <= inner->begin && inner->begin <= inner->end && inner->end <= outer.end;
}

} // namespace

TEST_CASE("phases follow each other") {
    const Sample sample;
    const auto trace = trace_of(sample.record, sample.request.get());
    REQUIRE(trace);
    complete(*trace, *sample.request);
    CHECK(trace->spans() == 5);
    CHECK(trace->request.end - trace->request.begin == 10'000'000);
    CHECK(trace->queue->begin == trace->request.begin + 1'000'000);
    CHECK(length(trace->queue) == 3'000'000);
    CHECK(trace->execute->begin == trace->queue->end);
    CHECK(trace->execute->end == trace->request.end);
    CHECK(length(trace->restore) == 2'000'000);
    CHECK(within(trace->restore, *trace->queue));
    CHECK(length(trace->reset) == 150'000);
    CHECK(trace->path == "/x");
    CHECK(trace->function == "hello");
    CHECK(trace->version == 3);
    CHECK_FALSE(trace->failed);
}

TEST_CASE("a reply ends when the client has it, not when that is noticed") {
    Sample sample;
    sample.record.ended -= std::chrono::seconds(7);
    const auto trace = trace_of(sample.record, sample.request.get());
    const std::chrono::nanoseconds now = std::chrono::system_clock::now().time_since_epoch();
    CHECK(trace->request.end <= now.count() - 7'000'000'000);
    CHECK(trace->request.end > now.count() - 60'000'000'000);
}

TEST_CASE("a process that reports anything moves no period out of its bounds") {
    for (const std::uint64_t us : {std::uint64_t{0}, std::uint64_t{1} << 53, std::uint64_t{1} << 63, kMost}) {
        CAPTURE(us);
        const Sample sample;
        sample.request->restore_us = sample.request->reset_us = us;
        const auto trace = trace_of(sample.record, sample.request.get());
        complete(*trace, *sample.request);
        CHECK(within(trace->restore, *trace->queue));
        CHECK(within(trace->reset, {trace->execute->begin, trace->request.end + 1'000'000'000}));
    }
}

TEST_CASE("a request that joined a restore under way has the rest of it") {
    const Sample sample;
    sample.request->restore_us = 60'000'000;
    const auto trace = trace_of(sample.record, sample.request.get());
    complete(*trace, *sample.request);
    CHECK(trace->restore->begin - trace->queue->begin < 1000); // a microsecond
}

TEST_CASE("a request that no machine got has only a queue; one without a route has no phase") {
    Sample sample;
    sample.request->began_ns = sample.request->clean_ns = sample.request->restored_ns = 0;
    sample.record.exec_us = 0;
    sample.record.status = 503;
    sample.record.outcome = http::Outcome::queue_full;
    const auto refused = trace_of(sample.record, sample.request.get());
    complete(*refused, *sample.request);
    CHECK(refused->spans() == 2);
    CHECK(length(refused->queue) == 3'000'000);
    CHECK(refused->failed);
    CHECK(refused->outcome == "queue-full");

    sample.record.status = 404;
    sample.record.outcome = http::Outcome::no_route;
    const auto unrouted = trace_of(sample.record, nullptr);
    CHECK(unrouted->spans() == 1);
    CHECK_FALSE(unrouted->failed);
    CHECK(unrouted->function.empty());
}

TEST_CASE("only what is sampled is recorded, and long texts are cut") {
    Sample sample;
    const std::string path = "/" + std::string(5000, 'p'), host(5000, 'h');
    sample.record.path = path;
    sample.record.host = host;
    sample.trace.state = std::string(513, 's');
    const auto trace = trace_of(sample.record, nullptr);
    CHECK(trace->path.size() == 1024);
    CHECK(trace->host.size() == 256);
    CHECK(trace->state.empty());
    sample.trace.sampled = false;
    CHECK_FALSE(trace_of(sample.record, nullptr));
    sample.record.trace = nullptr;
    CHECK_FALSE(trace_of(sample.record, nullptr));
}
