#include "src/http/request_head.hpp"

#include "src/http/cross_check.hpp"
#include "src/http/target.hpp"

namespace kvmserver::http {
namespace {

constexpr std::size_t kMaxMethod = 32;

bool version_shape(std::string_view text) {
    return text.size() == 8 && text.starts_with("HTTP/") && text[5] >= '0' && text[5] <= '9' && text[6] == '.' &&
           text[7] >= '0' && text[7] <= '9';
}

Fault scan_request_line(std::string_view line, const HeadLimits& limits, RequestHead& head) {
    const std::size_t first = line.find(' ');
    const std::size_t last = line.rfind(' ');
    if (first == std::string_view::npos || first == last)
        return {400, "bad-request-line", "The request line is not METHOD TARGET VERSION."};
    head.method = line.substr(0, first);
    head.target = line.substr(first + 1, last - first - 1);
    const std::string_view version = line.substr(last + 1);
    if (!is_token(head.method))
        return {400, "bad-method", "The method is not a token."};
    if (head.method.size() > kMaxMethod)
        return {501, "unknown-method", "The method is not known."};
    if (!version_shape(version))
        return {400, "bad-version", "The request line does not end with a version of HTTP."};
    if (version != "HTTP/1.1" && version != "HTTP/1.0")
        return {505, "unsupported-version", "Only HTTP/1.1 and HTTP/1.0 are served."};
    head.minor_version = version.back() - '0';
    if (head.target.size() > limits.target_bytes)
        return {414, "target-too-long", "The request target is too long."};
    return {};
}

Fault scan_host(const Target& target, RequestHead& head) {
    const Field* host = nullptr;
    for (const Field& field : head.fields) {
        if (!equal_nocase(field.name, "host"))
            continue;
        if (host)
            return {400, "duplicate-host", "There is more than one Host."};
        host = &field;
    }
    if (!host && head.minor_version > 0)
        return {400, "no-host", "There is no Host."};
    if (host && !valid_authority(host->value))
        return {400, "bad-host", "Host is not a name or address with an optional port."};
    if (host && target.absolute && !same_authority(host->value, target.authority, target.secure))
        return {400, "inconsistent-host", "Host differs from the host in the request target."};
    if (target.absolute)
        head.host = target.authority;
    else
        head.host = host ? host->value : std::string_view();
    return {};
}

void scan_options(RequestHead& head) {
    bool close = false, keep = false, connection_upgrade = false;
    std::string_view protocol;
    for (const Field& field : head.fields) {
        if (equal_nocase(field.name, "connection")) {
            close = close || list_has(field.value, "close");
            keep = keep || list_has(field.value, "keep-alive");
            connection_upgrade = connection_upgrade || list_has(field.value, "upgrade");
        } else if (equal_nocase(field.name, "upgrade")) {
            protocol = field.value;
        } else if (equal_nocase(field.name, "expect")) {
            head.expects_continue = equal_nocase(field.value, "100-continue");
        } else if (equal_nocase(field.name, "traceparent")) {
            head.traceparent = field.value;
        }
    }
    head.keep_alive = !close && (head.minor_version > 0 || keep);
    const bool has_body =
        head.body.kind == BodyKind::chunked || (head.body.kind == BodyKind::length && head.body.length > 0);
    // h2c would carry requests that bypass routing and checks.
    head.upgrade =
        connection_upgrade && !protocol.empty() && !list_has(protocol, "h2c") && head.minor_version > 0 && !has_body;
}

} // namespace

std::string_view RequestHead::find(std::string_view name) const {
    for (const Field& field : fields)
        if (equal_nocase(field.name, name))
            return field.value;
    return {};
}

Fault parse_request_head(std::string_view bytes, const HeadLimits& limits, RequestHead& head) {
    std::vector<Field> fields = std::move(head.fields); // reuse its memory
    head = {};
    head.fields = std::move(fields);
    const std::size_t line = bytes.find("\r\n");
    if (line == std::string_view::npos || !bytes.ends_with("\r\n\r\n"))
        return {400, "bad-request-line", "The head is incomplete."};
    head.request_line = bytes.substr(0, line + 2);
    if (const Fault fault = scan_request_line(bytes.substr(0, line), limits, head))
        return fault;
    Target target;
    if (const Fault fault = scan_target(head.method, head.target, target))
        return fault;
    head.path = target.path;
    if (const Fault fault = scan_fields(bytes.substr(line + 2, bytes.size() - line - 4), limits.fields, head.fields))
        return fault;
    if (const Fault fault = scan_host(target, head))
        return fault;
    if (const Fault fault = scan_framing(head.fields, head.minor_version, head.body))
        return fault;
    scan_options(head);
    return agree_on_request(bytes, head.body);
}

} // namespace kvmserver::http
