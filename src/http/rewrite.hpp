// Writes outgoing heads: the bytes that were received, with the hop-by-hop headers replaced.
#pragma once
#include <string>
#include <string_view>

#include "src/http/reply_head.hpp"
#include "src/http/request_head.hpp"

namespace kvmserver::http {

// Headers to add to the client's head; empty ones are left out.
struct RequestExtras {
    std::string_view traceparent;    // replaces the client's
    bool without_tracestate = false; // the client's is left out
    std::string_view forwarded_for;  // for the three X-Forwarded headers, which replace the client's
    std::string_view forwarded_proto;
};

// The program gets the client's lines, except that Connection becomes close (or Upgrade).
void append_request(std::string& out, const RequestHead& head, const RequestExtras& extras);

// What the client is told about its connection. keep_1_0: HTTP/1.0, which needs a header to keep it.
enum class ClientConnection { keep, keep_1_0, close };

// Always HTTP/1.1, whatever version the program uses. `chunked`: we frame a body that had no length. `plain`: we remove
// chunked coding.
struct ReplyFraming {
    bool chunked = false;
    bool plain = false;
};
// `more`: header lines to add, each with its CRLF.
void append_reply(std::string& out, const ReplyHead& head, ClientConnection connection, ReplyFraming framing,
                  std::string_view more = {});
// For 1xx replies. 101 keeps its Connection header.
void append_interim(std::string& out, const ReplyHead& head, std::string_view more = {});

} // namespace kvmserver::http
