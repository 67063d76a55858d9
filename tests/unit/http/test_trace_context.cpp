// traceparent and tracestate: what is accepted, and who decides whether a request is traced.
#include "src/http/trace_context.hpp"

#include "src/http/rewrite.hpp"
#include "tests/catch.hpp"

using namespace kvmserver::http;

namespace {

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736", kSpan = "00f067aa0ba902b7";

struct Parsed {
    std::string bytes;
    RequestHead head;
};

std::unique_ptr<Parsed> head_with(const std::string& fields) {
    auto out = std::make_unique<Parsed>();
    out->bytes = "GET / HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n";
    REQUIRE_FALSE(parse_request_head(out->bytes, {}, out->head));
    return out;
}

} // namespace

TEST_CASE("a traceparent is parsed") {
    const std::string valid = "00-" + kTrace + "-" + kSpan + "-01";
    const auto parent = parse_traceparent(valid);
    REQUIRE(parent);
    CHECK(parent->trace_id == kTrace);
    CHECK(parent->span_id == kSpan);
    CHECK(parent->sampled);
    CHECK_FALSE(parse_traceparent("00-" + kTrace + "-" + kSpan + "-00")->sampled);
    CHECK_FALSE(parse_traceparent("00-" + kTrace + "-" + kSpan + "-fe")->sampled);
    CHECK(parse_traceparent("00-" + kTrace + "-" + kSpan + "-0b")->sampled);
    CHECK(parse_traceparent("cc-" + kTrace + "-" + kSpan + "-01")); // a later version
    CHECK(parse_traceparent("cc-" + kTrace + "-" + kSpan + "-01-more"));
}

TEST_CASE("an invalid traceparent is refused") {
    const std::string upper = "4BF92f3577b34da6a3ce929d0e0e4736";
    for (const std::string& bad :
         {std::string(), std::string("00"), "00-" + kTrace + "-" + kSpan, "00-" + kTrace + "-" + kSpan + "-1",
          "00-" + kTrace + "-" + kSpan + "-01-", "00-" + kTrace + "-" + kSpan + "-01-more",
          "cc-" + kTrace + "-" + kSpan + "-01.more", "ff-" + kTrace + "-" + kSpan + "-01",
          "0g-" + kTrace + "-" + kSpan + "-01", "00-" + upper + "-" + kSpan + "-01",
          "00-" + std::string(32, '0') + "-" + kSpan + "-01", "00-" + kTrace + "-" + std::string(16, '0') + "-01",
          "00-" + kTrace + "-" + kSpan + "-0x", "00_" + kTrace + "-" + kSpan + "-01"}) {
        CAPTURE(bad);
        CHECK_FALSE(parse_traceparent(bad));
    }
}

TEST_CASE("a client's decision is honoured, whatever share is sampled") {
    Ids ids;
    const auto sampled =
        head_with("traceparent: 00-" + kTrace + "-" + kSpan + "-01\r\ntracestate: a=1\r\ntracestate: b=2\r\n");
    const Trace trace = join_trace(sampled->head, 0, ids);
    CHECK(trace.sampled);
    CHECK(trace.trace_id == kTrace);
    CHECK(trace.parent_id == kSpan);
    CHECK(trace.state == "a=1,b=2");
    CHECK_FALSE(trace.parent_refused);
    CHECK(trace.span_id != kSpan);
    CHECK(trace.traceparent() == "00-" + kTrace + "-" + trace.span_id + "-01");

    const auto unsampled = head_with("traceparent: 00-" + kTrace + "-" + kSpan + "-00\r\n");
    const Trace other = join_trace(unsampled->head, 1, ids);
    CHECK_FALSE(other.sampled);
    CHECK(other.traceparent().empty()); // the program gets the client's
}

TEST_CASE("what is invalid begins a new trace, and does not reach the program") {
    Ids ids;
    const std::string valid = "traceparent: 00-" + kTrace + "-" + kSpan + "-01\r\n";
    for (const std::string& fields :
         {valid + valid, std::string("traceparent: x\r\n"), std::string("tracestate: a=1\r\n"),
          std::string("traceparent: x\r\ntracestate: a=1\r\n")}) {
        CAPTURE(fields);
        const auto parsed = head_with(fields);
        const Trace trace = join_trace(parsed->head, 1, ids);
        CHECK(trace.sampled);
        CHECK(trace.trace_id != kTrace);
        CHECK(trace.parent_id.empty());
        CHECK(trace.state.empty());
        CHECK(trace.parent_refused);
        REQUIRE(parse_traceparent(trace.traceparent()));
        std::string out;
        append_request(out, parsed->head,
                       {.traceparent = trace.traceparent(),
                        .without_tracestate = true,
                        .forwarded_for = {},
                        .forwarded_proto = {}});
        CHECK(out ==
              "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\ntraceparent: " + trace.traceparent() + "\r\n\r\n");
    }
}

TEST_CASE("the share of new traces that is sampled") {
    Ids ids;
    const auto parsed = head_with("");
    const auto sampled_of = [&](double share, int requests) {
        int sampled = 0;
        for (int i = 0; i < requests; ++i) {
            const Trace trace = join_trace(parsed->head, share, ids);
            CHECK(parse_traceparent(trace.traceparent())->sampled == trace.sampled);
            sampled += trace.sampled;
        }
        return sampled;
    };
    CHECK(sampled_of(0, 1000) == 0);
    CHECK(sampled_of(1, 1000) == 1000);
    const int quarter = sampled_of(0.25, 40'000); // a standard deviation is 87
    CHECK(quarter > 9400);
    CHECK(quarter < 10'600);
}
