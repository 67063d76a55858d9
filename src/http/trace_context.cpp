#include "src/http/trace_context.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace kvmserver::http {
namespace {

// version "-" trace-id "-" parent-id "-" flags
constexpr std::size_t kTraceId = 3, kTraceIdBytes = 32, kSpanId = 36, kSpanIdBytes = 16, kFlags = 53, kBytes = 55;
constexpr unsigned kSampled = 1;

bool is_hex(std::string_view text) {
    return std::all_of(text.begin(), text.end(),
                       [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_id(std::string_view text) { return is_hex(text) && text.find_first_not_of('0') != text.npos; }

// Decides by the id, so that all services with the same share decide alike. By the last 56 bits: only they must be
// random (Trace Context Level 2, "Random Trace ID Flag").
bool is_chosen(std::string_view trace_id, double share) {
    constexpr std::size_t kDigits = 14;
    const std::string_view random = trace_id.substr(kTraceIdBytes - kDigits);
    std::uint64_t value = 0;
    std::from_chars(random.data(), random.data() + random.size(), value, 16);
    return static_cast<double>(value) >= (1 - share) * static_cast<double>(std::uint64_t{1} << (4 * kDigits));
}

std::string joined(const RequestHead& head, std::string_view name) {
    std::string out;
    for (const Field& field : head.fields)
        if (equal_nocase(field.name, name))
            out.append(out.empty() ? "" : ",").append(field.value);
    return out;
}

} // namespace

std::optional<TraceParent> parse_traceparent(std::string_view text) {
    if (text.size() < kBytes || text[kTraceId - 1] != '-' || text[kSpanId - 1] != '-' || text[kFlags - 1] != '-')
        return std::nullopt;
    const std::string_view version = text.substr(0, 2), flags = text.substr(kFlags, 2);
    if (!is_hex(version) || version == "ff" || !is_hex(flags))
        return std::nullopt;
    // Later versions may only append.
    if (text.size() > kBytes && (version == "00" || text[kBytes] != '-'))
        return std::nullopt;
    const TraceParent out{.trace_id = text.substr(kTraceId, kTraceIdBytes),
                          .span_id = text.substr(kSpanId, kSpanIdBytes),
                          .sampled = ((flags[1] <= '9' ? flags[1] - '0' : flags[1] - 'a' + 10) & kSampled) != 0};
    if (!is_id(out.trace_id) || !is_id(out.span_id))
        return std::nullopt;
    return out;
}

std::string Trace::traceparent() const {
    if (span_id.empty())
        return "";
    return "00-" + trace_id + "-" + span_id + (sampled ? "-01" : "-00");
}

Trace join_trace(const RequestHead& head, double share, Ids& ids) {
    Trace out;
    std::size_t parents = 0, states = 0;
    for (const Field& field : head.fields) {
        parents += equal_nocase(field.name, "traceparent");
        states += equal_nocase(field.name, "tracestate");
    }
    const auto parent = parents == 1 ? parse_traceparent(head.traceparent) : std::nullopt;
    if (parent) {
        out.trace_id = parent->trace_id;
        out.parent_id = parent->span_id;
        out.sampled = parent->sampled;
        if (out.sampled) {
            out.span_id = ids.span_id();
            out.state = states == 0 ? "" : joined(head, "tracestate");
        }
        return out;
    }
    out.parent_refused = parents + states != 0;
    out.trace_id = ids.trace_id();
    out.span_id = ids.span_id();
    out.sampled = is_chosen(out.trace_id, share);
    return out;
}

} // namespace kvmserver::http
