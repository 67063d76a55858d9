#include "src/http/reply_head.hpp"

#include "src/http/cross_check.hpp"

namespace kvmserver::http {
namespace {

constexpr Fault bad(const char* detail) { return {502, "bad-reply", detail}; }

Fault scan_status_line(std::string_view line, ReplyHead& head) {
    if (!line.starts_with("HTTP/1.1 ") && !line.starts_with("HTTP/1.0 "))
        return bad("The program's reply does not begin with HTTP/1.1 or HTTP/1.0.");
    head.minor_version = line[7] - '0';
    head.status_and_reason = line.substr(9);
    const std::string_view status = head.status_and_reason.substr(0, 3);
    for (const char c : status)
        if (c < '0' || c > '9')
            return bad("The status of the program's reply is not a number.");
    // RFC 9112 section 4: the space after the status is required even without a reason.
    if (status.size() < 3 || status.front() < '1' || status.front() > '5' || head.status_and_reason.size() < 4 ||
        head.status_and_reason[3] != ' ')
        return bad("The status line of the program's reply is not VERSION, a status from 100 to 599 and a reason.");
    head.status = static_cast<unsigned>((status[0] - '0') * 100 + (status[1] - '0') * 10 + (status[2] - '0'));
    return {};
}

} // namespace

Fault parse_reply_head(std::string_view bytes, const HeadLimits& limits, const ReplyContext& context, ReplyHead& head) {
    std::vector<Field> fields = std::move(head.fields); // reuse its memory
    head = {};
    head.fields = std::move(fields);
    const std::size_t line = bytes.find("\r\n");
    if (line == std::string_view::npos || !bytes.ends_with("\r\n\r\n"))
        return bad("The head of the program's reply is incomplete.");
    if (const Fault fault = scan_status_line(bytes.substr(0, line), head))
        return fault;
    if (const Fault fault = scan_fields(bytes.substr(line + 2, bytes.size() - line - 4), limits.fields, head.fields))
        return {502, "bad-reply", fault.detail};
    if (const Fault fault = scan_framing(head.fields, head.minor_version, head.body))
        return {502, "bad-reply", fault.detail};
    if (head.status == 101 && !context.upgrade)
        return bad("The program switches to another protocol though the client did not ask for it.");
    if (const Fault fault = agree_on_reply(bytes, head.body, context.head_request))
        return fault;
    if (context.head_request || head.interim() || head.status == 204 || head.status == 304)
        head.body = {};
    else if (head.body.kind == BodyKind::none)
        head.body.kind = BodyKind::until_close;
    return {};
}

} // namespace kvmserver::http
