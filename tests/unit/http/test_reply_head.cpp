// Heads of replies: programs are not trusted either.
#include "tests/catch.hpp"
#include "tests/unit/http/parse.hpp"

using namespace http_test;
using std::string;

TEST_CASE("replies and where their bodies end") {
    struct Row {
        string text;
        unsigned status;
        BodyKind body;
        ReplyContext context;
    };
    const Row rows[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 200, BodyKind::length, {}},
        {"HTTP/1.1 200 \r\n\r\n", 200, BodyKind::until_close, {}},
        {"HTTP/1.0 404 Not Found at all\r\n\r\n", 404, BodyKind::until_close, {}},
        {"HTTP/1.1 200 OK\r\ntransfer-encoding: CHUNKED\r\n\r\n", 200, BodyKind::chunked, {}},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 200, BodyKind::none, {.head_request = true}},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200, BodyKind::none, {.head_request = true}},
        {"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", 204, BodyKind::none, {}},
        {"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304, BodyKind::none, {}},
        {"HTTP/1.1 100 Continue\r\n\r\n", 100, BodyKind::none, {}},
        {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n", 101, BodyKind::none, {.upgrade = true}},
        {"HTTP/1.1 599 \xc3\xbc\r\nX:\r\n\r\n", 599, BodyKind::until_close, {}},
    };
    for (const Row& row : rows) {
        CAPTURE(row.text);
        ReplyHead head;
        const Fault fault = parse(row.text, head, row.context);
        CAPTURE(fault.detail);
        REQUIRE_FALSE(fault);
        CHECK(head.status == row.status);
        CHECK(head.body.kind == row.body);
    }
}

TEST_CASE("replies that are refused") {
    const auto ok = [](const string& lines) { return "HTTP/1.1 200 OK\r\n" + lines + "\r\n"; };
    const string rows[] = {
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.2 200 OK\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "HTTP/1.1 200\r\n\r\n",
        "HTTP/1.1 200OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1 600 OK\r\n\r\n",
        "HTTP/1.1 2x0 OK\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n", // nobody asked
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        ok("Content-Length: 1\r\nContent-Length: 1\r\n"),
        ok("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
        ok("Content-Length: x\r\n"),
        ok("Transfer-Encoding: gzip\r\n"),
        ok("X : y\r\n"),
        ok("X: y\r\n z\r\n"),
        ok("nothing\r\n"),
        ok("Set-Cookie: a\rInjected: b\r\n"),
        "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        "hello\r\n\r\n",
    };
    for (const string& text : rows) {
        CAPTURE(text);
        ReplyHead head;
        const Fault fault = parse(text, head);
        CHECK(fault.status >= 400); // of HeadEnd: 400, which the front turns into 502
    }
}
