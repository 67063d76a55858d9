// Parses the head of a reply. The program is not trusted: a head that does not follow the grammar exactly is a fault
// (the client gets 502).
#pragma once
#include <string_view>
#include <vector>

#include "src/http/fields.hpp"
#include "src/http/head_end.hpp"

namespace kvmserver::http {

// Points into the bytes that it was parsed from.
struct ReplyHead {
    unsigned status = 0;
    std::string_view status_and_reason; // "200 OK"
    int minor_version = 1;
    std::vector<Field> fields;
    Framing body;

    bool interim() const { return status < 200; } // including 101
};

struct ReplyContext {
    bool head_request = false; // the request was HEAD
    bool upgrade = false;      // the request asked for an upgrade
};

Fault parse_reply_head(std::string_view bytes, const HeadLimits& limits, const ReplyContext& context, ReplyHead& head);

} // namespace kvmserver::http
