#include "src/http/rewrite.hpp"

namespace kvmserver::http {
namespace {

void append(std::string& out, std::string_view name, std::string_view value) {
    out.append(name).append(": ").append(value).append("\r\n");
}

bool is_forwarded(std::string_view name) {
    return equal_nocase(name, "x-forwarded-for") || equal_nocase(name, "x-forwarded-proto") ||
           equal_nocase(name, "x-forwarded-host");
}

bool is_replaced(std::string_view name, const RequestExtras& extras) {
    return (!extras.forwarded_for.empty() && is_forwarded(name)) ||
           (!extras.traceparent.empty() && equal_nocase(name, "traceparent")) ||
           (extras.without_tracestate && equal_nocase(name, "tracestate"));
}

void append_status_line(std::string& out, const ReplyHead& head) {
    out.append("HTTP/1.1 ").append(head.status_and_reason).append("\r\n");
}

} // namespace

void append_request(std::string& out, const RequestHead& head, const RequestExtras& extras) {
    const std::string_view connection = head.upgrade ? "Upgrade" : "close";
    bool connected = false;
    out.append(head.request_line);
    for (const Field& field : head.fields) {
        if (equal_nocase(field.name, "connection")) {
            if (!connected)
                append(out, field.name, connection);
            connected = true;
        } else if (!is_replaced(field.name, extras)) {
            out.append(field.line);
        }
    }
    if (!connected)
        append(out, "Connection", connection);
    if (!extras.traceparent.empty())
        append(out, "traceparent", extras.traceparent);
    if (!extras.forwarded_for.empty()) {
        append(out, "X-Forwarded-For", extras.forwarded_for);
        append(out, "X-Forwarded-Proto", extras.forwarded_proto);
        append(out, "X-Forwarded-Host", head.host);
    }
    out.append("\r\n");
}

void append_reply(std::string& out, const ReplyHead& head, ClientConnection connection, ReplyFraming framing,
                  std::string_view more) {
    append_status_line(out, head);
    const bool no_body_ever = head.status == 204;
    for (const Field& field : head.fields) {
        if (equal_nocase(field.name, "connection") || equal_nocase(field.name, "keep-alive") ||
            equal_nocase(field.name, "proxy-connection"))
            continue;
        // RFC 9112 section 6.1: a 204 may have neither; a client that believes one would wait for a body.
        const bool coding = equal_nocase(field.name, "transfer-encoding");
        if ((no_body_ever && (coding || equal_nocase(field.name, "content-length"))) || (framing.plain && coding))
            continue;
        out.append(field.line);
    }
    if (framing.chunked)
        append(out, "Transfer-Encoding", "chunked");
    if (connection == ClientConnection::close)
        append(out, "Connection", "close");
    else if (connection == ClientConnection::keep_1_0)
        append(out, "Connection", "keep-alive");
    out.append(more).append("\r\n");
}

void append_interim(std::string& out, const ReplyHead& head, std::string_view more) {
    append_status_line(out, head);
    for (const Field& field : head.fields) {
        // No body can follow, so no header may announce one.
        if (equal_nocase(field.name, "content-length") || equal_nocase(field.name, "transfer-encoding") ||
            (head.status != 101 && equal_nocase(field.name, "connection")))
            continue;
        out.append(field.line);
    }
    out.append(more).append("\r\n");
}

} // namespace kvmserver::http
