// Requests as OTLP/JSON.
#include "src/tracing/otlp_json.hpp"

#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/catch.hpp"

using namespace kvmserver;
using namespace kvmserver::tracing;
using nlohmann::json;

namespace {

RequestTrace sample() {
    RequestTrace out;
    out.trace_id = "4bf92f3577b34da6a3ce929d0e0e4736";
    out.span_id = "00f067aa0ba902b7";
    out.method = "GET";
    out.host = "[::1]:8080";
    out.path = "/a";
    out.scheme = "http";
    out.outcome = "ok";
    out.status = 200;
    out.function = "hello";
    out.version = 4;
    out.request = {1'800'000'000'000'000'000, 1'800'000'000'000'009'000};
    return out;
}

json spans_of(const RequestTrace& request) {
    http::Ids ids;
    const json all = json::parse(otlp_json({"1.2", "i", "h"}, std::span(&request, 1), ids));
    return all.at("resourceSpans").at(0).at("scopeSpans").at(0).at("spans");
}

std::map<std::string, json> attributes_of(const json& span) {
    std::map<std::string, json> out;
    for (const json& one : span.at("attributes"))
        out[one.at("key")] = one.at("value");
    return out;
}

} // namespace

TEST_CASE("integers of 64 bits are strings, ids hexadecimal, kinds numbers") {
    RequestTrace request = sample();
    const json spans = spans_of(request);
    REQUIRE(spans.size() == 1);
    const json& span = spans[0];
    CHECK(span.at("traceId") == request.trace_id);
    CHECK(span.at("spanId") == request.span_id);
    CHECK_FALSE(span.contains("parentSpanId"));
    CHECK_FALSE(span.contains("traceState"));
    CHECK_FALSE(span.contains("status"));
    CHECK(span.at("kind") == 2);
    CHECK(span.at("name") == "GET hello");
    CHECK(span.at("startTimeUnixNano") == "1800000000000000000");
    CHECK(span.at("endTimeUnixNano") == "1800000000000009000");
    auto said = attributes_of(span);
    CHECK(said["http.response.status_code"] == json{{"intValue", "200"}});
    CHECK(said["kvmserver.version"] == json{{"intValue", "4"}});
    CHECK(said["kvmserver.cold_start"] == json{{"boolValue", false}});
    CHECK(said["server.address"] == json{{"stringValue", "[::1]"}});
    CHECK(said["server.port"] == json{{"intValue", "8080"}});
    CHECK_FALSE(said.contains("error.type"));
}

TEST_CASE("phases are children, and the restore is part of the queue") {
    RequestTrace request = sample();
    request.parent_id = "1111111111111111";
    request.state = "a=b";
    request.queue = {{1, 5}};
    request.restore = {{2, 4}};
    request.execute = {{5, 9}};
    request.reset = {{9, 12}};
    request.cpu_us = std::numeric_limits<std::uint64_t>::max(); // a process may report anything
    const json spans = spans_of(request);
    REQUIRE(spans.size() == request.spans());
    REQUIRE(spans.size() == 5);
    std::map<std::string, json> by_name;
    for (const json& span : spans) {
        CHECK(span.at("traceState") == "a=b");
        by_name[span.at("name")] = span;
    }
    CHECK(by_name["GET hello"].at("parentSpanId") == request.parent_id);
    for (const char* name : {"queue", "execute", "reset"})
        CHECK(by_name[name].at("parentSpanId") == request.span_id);
    CHECK(by_name["restore"].at("parentSpanId") == by_name["queue"].at("spanId"));
    CHECK(by_name["restore"].at("kind") == 1);
    CHECK(by_name["restore"].at("startTimeUnixNano") == "2");
    CHECK(attributes_of(by_name["execute"])["kvmserver.cpu_us"] == json{{"intValue", "9223372036854775807"}});
}

TEST_CASE("whatever a client sends becomes valid JSON") {
    RequestTrace request = sample();
    request.method = "BREW";
    request.path = "/\xff\"\\";
    request.user_agent = "\x80";
    request.host = "a:99999999999999999999";
    request.failed = true;
    request.status = 500;
    const json span = spans_of(request)[0];
    CHECK(span.at("name") == "HTTP hello");
    CHECK(span.at("status").at("code") == 2);
    auto said = attributes_of(span);
    CHECK(said["http.request.method"].at("stringValue") == "_OTHER");
    CHECK(said["http.request.method_original"].at("stringValue") == "BREW");
    CHECK(said["url.path"].at("stringValue") == "/\xef\xbf\xbd\"\\");
    CHECK(said["error.type"].at("stringValue") == "500");
    CHECK_FALSE(said.contains("server.port"));
}
