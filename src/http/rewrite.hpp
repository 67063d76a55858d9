// The heads that leave: the bytes that came, with the hop-by-hop headers replaced.
#pragma once
#include <string>
#include <string_view>

#include "src/http/reply_head.hpp"
#include "src/http/request_head.hpp"

namespace kvmserver::http {

// What is added to the client's head; each is left out when empty.
struct RequestExtras {
    std::string traceparent;
    std::string_view forwarded_for; // the three X-Forwarded headers; those of the client are then dropped
    std::string_view forwarded_proto;
};

// The program sees the lines that the client sent, but for Connection, which says close (or Upgrade).
void append_request(std::string& out, const RequestHead& head, const RequestExtras& extras);

enum class ClientConnection { keep, keep_1_0, close };

// Always HTTP/1.1: the front speaks it whatever the program speaks. `chunked` says that the body, which had no
// length of its own, is framed here; `plain` that chunks are unpacked here.
struct ReplyFraming {
    bool chunked = false;
    bool plain = false;
};
void append_reply(std::string& out, const ReplyHead& head, ClientConnection connection, ReplyFraming framing);
// 100, 103, ... and 101, which keeps its Connection header.
void append_interim(std::string& out, const ReplyHead& head);

} // namespace kvmserver::http
