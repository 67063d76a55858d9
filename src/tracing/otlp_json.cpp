#include "src/tracing/otlp_json.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace kvmserver::tracing {
namespace {

using nlohmann::ordered_json;

// Numbers of the protocol's enums. Ids are hexadecimal, integers of 64 bits are strings.
enum SpanKind { kInternal = 1, kServer = 2 };
constexpr int kStatusError = 2;
constexpr unsigned kSampled = 1, kHasIsRemote = 0x100, kIsRemote = 0x200; // Span.flags

ordered_json attribute(std::string_view key, ordered_json value) { return {{"key", key}, {"value", std::move(value)}}; }

class Attributes {
public:
    void text(std::string_view key, const std::string& value) {
        if (!value.empty())
            list_.push_back(attribute(key, {{"stringValue", value}}));
    }
    void number(std::string_view key, std::uint64_t value) {
        const auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        list_.push_back(attribute(key, {{"intValue", std::to_string(std::min(value, most))}}));
    }
    void flag(std::string_view key, bool value) { list_.push_back(attribute(key, {{"boolValue", value}})); }
    ordered_json take() { return std::move(list_); }

private:
    ordered_json list_ = ordered_json::array();
};

// Other methods are up to clients, and would make as many span names.
bool is_known(const std::string& method) {
    static constexpr std::array<std::string_view, 9> kKnown{"GET",     "HEAD",    "POST",  "PUT",  "DELETE",
                                                            "CONNECT", "OPTIONS", "TRACE", "PATCH"};
    return std::find(kKnown.begin(), kKnown.end(), method) != kKnown.end();
}

std::string name_of(const RequestTrace& request) {
    const std::string method = is_known(request.method) ? request.method : "HTTP";
    return request.function.empty() ? method : method + " " + request.function;
}

// HOST:PORT, [HOST]:PORT, HOST.
std::pair<std::string, std::string> host_and_port(const std::string& host) {
    const std::size_t colon = host.rfind(':');
    if (colon == host.npos || host.find(']', colon) != host.npos)
        return {host, ""};
    return {host.substr(0, colon), host.substr(colon + 1)};
}

ordered_json attributes_of(const RequestTrace& request) {
    Attributes out;
    const bool known = is_known(request.method);
    out.text("http.request.method", known ? request.method : "_OTHER");
    if (!known)
        out.text("http.request.method_original", request.method);
    out.text("url.scheme", request.scheme);
    // Without the query, which holds more secrets than paths.
    out.text("url.path", request.path.substr(0, request.path.find('?')));
    out.text("http.route", request.route);
    if (request.status != 0)
        out.number("http.response.status_code", request.status);
    if (request.failed)
        out.text("error.type", request.outcome == "ok" ? std::to_string(request.status) : request.outcome);
    const auto [host, port] = host_and_port(request.host);
    out.text("server.address", host);
    if (!port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == port.npos)
        out.number("server.port", std::stoul(port));
    out.text("client.address", request.client);
    out.text("user_agent.original", request.user_agent);
    out.text("network.protocol.version", request.minor_version == 0 ? "1.0" : "1.1");
    out.text("kvmserver.request_id", request.request_id);
    out.text("kvmserver.outcome", request.outcome);
    if (!request.function.empty()) {
        out.text("kvmserver.function", request.function);
        out.number("kvmserver.version", request.version);
        out.flag("kvmserver.cold_start", request.cold);
    }
    return out.take();
}

ordered_json span(const RequestTrace& request, const std::string& id, const std::string& parent,
                  const std::string& name, SpanKind kind, const Period& when) {
    ordered_json out{{"traceId", request.trace_id}, {"spanId", id}};
    if (!parent.empty())
        out["parentSpanId"] = parent;
    if (!request.state.empty())
        out["traceState"] = request.state;
    out["flags"] = kSampled | kHasIsRemote | (kind == kServer && !parent.empty() ? kIsRemote : 0);
    out["name"] = name;
    out["kind"] = static_cast<int>(kind);
    out["startTimeUnixNano"] = std::to_string(when.begin);
    out["endTimeUnixNano"] = std::to_string(when.end);
    return out;
}

void add_spans(ordered_json& spans, const RequestTrace& request, http::Ids& ids) {
    ordered_json server = span(request, request.span_id, request.parent_id, name_of(request), kServer, request.request);
    server["attributes"] = attributes_of(request);
    if (request.failed)
        server["status"] = {{"code", kStatusError}};
    spans.push_back(std::move(server));
    // Returns the phase's id.
    const auto phase = [&](const char* name, const std::optional<Period>& when, const std::string& parent,
                           ordered_json attributes = nullptr) {
        if (!when)
            return std::string();
        std::string id = ids.span_id();
        ordered_json one = span(request, id, parent, name, kInternal, *when);
        if (!attributes.is_null())
            one["attributes"] = std::move(attributes);
        spans.push_back(std::move(one));
        return id;
    };
    const std::string queue = phase("queue", request.queue, request.span_id);
    phase("restore", request.restore, queue.empty() ? request.span_id : queue);
    Attributes execute;
    if (request.reset) // then its process has reported them
        execute.number("kvmserver.cpu_us", request.cpu_us);
    phase("execute", request.execute, request.span_id, execute.take());
    Attributes reset;
    reset.number("kvmserver.dirty_pages", request.dirty_pages);
    phase("reset", request.reset, request.span_id, reset.take());
}

} // namespace

std::string otlp_json(const Resource& resource, std::span<const RequestTrace> requests, http::Ids& ids) {
    Attributes who;
    who.text("service.name", "kvmserver");
    who.text("service.version", resource.version);
    who.text("service.instance.id", resource.instance);
    who.text("host.name", resource.host);
    ordered_json spans = ordered_json::array();
    for (const RequestTrace& request : requests)
        add_spans(spans, request, ids);
    const ordered_json scope{{"name", "kvmserver"}, {"version", resource.version}};
    const ordered_json scope_spans{{"scope", scope}, {"spans", std::move(spans)}};
    const ordered_json resource_spans{{"resource", {{"attributes", who.take()}}},
                                      {"scopeSpans", ordered_json::array({scope_spans})}};
    const ordered_json out{{"resourceSpans", ordered_json::array({resource_spans})}};
    return out.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

} // namespace kvmserver::tracing
