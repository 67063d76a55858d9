// Heads of requests: what is read, and all that is refused.
#include "tests/catch.hpp"
#include "tests/unit/http/parse.hpp"

using namespace http_test;
using std::string;

TEST_CASE("a request head is read, in pieces of any size") {
    const string text = "POST /a/b?c=d HTTP/1.1\r\nHost: Example.com:8080\r\nX-Empty:\r\nconTENT-length: \t42 \r\n"
                        "Expect: 100-Continue\r\ntraceparent: 00-abc\r\nX-Utf8: \xc3\xbc\tx\r\n\r\nBODY";
    for (std::size_t step = 1; step <= text.size(); ++step) {
        CAPTURE(step);
        RequestHead head;
        std::size_t size = 0;
        REQUIRE_FALSE(find_end(text, step, size));
        CHECK(size == text.size() - 4);
        REQUIRE_FALSE(parse(text, head, step));
        CHECK(head.method == "POST");
        CHECK(head.target == "/a/b?c=d");
        CHECK(head.path == "/a/b?c=d");
        CHECK(head.host == "Example.com:8080");
        CHECK(head.minor_version == 1);
        CHECK(head.fields.size() == 6);
        CHECK(head.find("x-empty") == "");
        CHECK(head.body.kind == BodyKind::length);
        CHECK(head.body.length == 42);
        CHECK(head.expects_continue);
        CHECK(head.keep_alive);
        CHECK_FALSE(head.upgrade);
        CHECK(head.traceparent == "00-abc");
        CHECK(head.find("X-UTF8") == "\xc3\xbc\tx");
    }
}

TEST_CASE("requests that are served") {
    struct Row {
        string text;
        const char *path, *host;
        bool keep;
        BodyKind body;
    };
    const Row rows[] = {
        {"GET / HTTP/1.0\r\n\r\n", "/", "", false, BodyKind::none},
        {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "/", "", true, BodyKind::none},
        {"GET / HTTP/1.1\r\nHost:\r\n\r\n", "/", "", true, BodyKind::none},
        {"GET / HTTP/1.1\r\nHost: a\r\nConnection: x , Close\r\n\r\n", "/", "a", false, BodyKind::none},
        {"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "/", "[::1]:80", true, BodyKind::none},
        {"GET / HTTP/1.1\r\nHost: a_b-c.d:\r\n\r\n", "/", "a_b-c.d:", true, BodyKind::none},
        {"GET http://a.b/c?d HTTP/1.1\r\nHost: A.B:80\r\n\r\n", "/c?d", "a.b", true, BodyKind::none},
        {"GET HTTPS://a.b:443 HTTP/1.1\r\nHost: a.b\r\n\r\n", "/", "a.b:443", true, BodyKind::none},
        {"GET http://a?b HTTP/1.0\r\n\r\n", "?b", "a", false, BodyKind::none},
        {"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "*", "a", true, BodyKind::none},
        {"M-SEARCH //x HTTP/1.1\r\nHost: a\r\n\r\n", "//x", "a", true, BodyKind::none},
        {"GET /\xc3\xbc|{} HTTP/1.1\r\nHost: a\r\n\r\n", "/\xc3\xbc|{}", "a", true, BodyKind::none},
        {"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n", "/", "a", true, BodyKind::chunked},
        {"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 007\r\n\r\n", "/", "a", true, BodyKind::length},
        {"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "/", "a", true, BodyKind::length},
    };
    for (const Row& row : rows) {
        CAPTURE(row.text);
        RequestHead head;
        const Fault fault = parse(row.text, head);
        CAPTURE(fault.detail);
        REQUIRE_FALSE(fault);
        CHECK(head.path == row.path);
        CHECK(head.host == row.host);
        CHECK(head.keep_alive == row.keep);
        CHECK(head.body.kind == row.body);
    }
}

TEST_CASE("requests that are refused") {
    const auto get = [](const string& lines) { return "GET / HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n"; };
    struct Row {
        unsigned status;
        string text, code;
    };
    const Row rows[] = {
        // lines
        {400, "GET / HTTP/1.1\nHost: a\r\n\r\n", "bare-lf"},
        {400, "GET / HTTP/1.1\r\nHost: a\n\r\n", "bare-lf"},
        {400, "GET / HTTP/1.1\r\nHost: a\r\n\n", "bare-lf"},
        {400, "GET / HTTP/1.1\rHost: a\r\n\r\n", "bare-cr"},
        {400, get("X: a\rb\r\n"), "bare-cr"},
        {400, get("X: a\r\r\n"), "bare-cr"},
        {400, get("X: a\r\n b\r\n"), "obsolete-folding"},
        {400, get("X: a\r\n\tb\r\n"), "obsolete-folding"},
        {400, "GET / HTTP/1.1\r\n Host: a\r\n\r\n", "obsolete-folding"},
        {400, get(string("X: a\0b\r\n", 8)), "control-character"},
        {400, get("X: a\x01\r\n"), "control-character"},
        {400, get("X: a\x7f\r\n"), "control-character"},
        {400,
         get("X: a\x0b"
             "chunked\r\n"),
         "control-character"},
        {400, "\x16\x03\x01\x02", "control-character"}, // TLS to a port without it
        // names
        {400, get("X : a\r\n"), "bad-header-name"},
        {400, get("X\t: a\r\n"), "bad-header-name"},
        {400, get(": a\r\n"), "bad-header-name"},
        {400, get("X(: a\r\n"), "bad-header-name"},
        {400, get("\xc3\xbc: a\r\n"), "bad-header-name"},
        {400, get("no colon\r\n"), "bad-header"},
        // request line
        {400, "GET /\r\n\r\n", "bad-request-line"},
        {400, "\r\n\r\n", "bad-request-line"},
        {400, "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", "bad-target"},
        {400, "GET /  HTTP/1.1\r\nHost: a\r\n\r\n", "bad-target"},
        {400, "GET /\tHTTP/1.1\r\nHost: a\r\n\r\n", "bad-request-line"},
        {400, "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", "bad-target"},
        {400, " GET / HTTP/1.1\r\nHost: a\r\n\r\n", "bad-method"},
        {400, "G@T / HTTP/1.1\r\nHost: a\r\n\r\n", "bad-method"},
        {400, "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", "bad-version"},
        {400, "GET / http/1.1\r\nHost: a\r\n\r\n", "bad-version"},
        {400, "GET / HTTP/1.10\r\nHost: a\r\n\r\n", "bad-version"},
        {400, "GET / HTTP/11\r\nHost: a\r\n\r\n", "bad-version"},
        {400, "GET / XTTP/1.1\r\nHost: a\r\n\r\n", "bad-version"},
        {505, "GET / HTTP/1.2\r\nHost: a\r\n\r\n", "unsupported-version"},
        {505, "GET / HTTP/0.9\r\n\r\n", "unsupported-version"},
        {505, "PRI * HTTP/2.0\r\n\r\n", "unsupported-version"},
        {501, "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", "no-proxy"},
        {501, string(33, 'G') + " / HTTP/1.1\r\nHost: a\r\n\r\n", "unknown-method"},
        // target
        {400, "GET a HTTP/1.1\r\nHost: a\r\n\r\n", "bad-target"},
        {400, "GET * HTTP/1.1\r\nHost: a\r\n\r\n", "bad-target"},
        {400, "GET /#x HTTP/1.1\r\nHost: a\r\n\r\n", "bad-target"},
        {400, "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", "bad-target"},
        {400, "GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", "bad-target"},
        {400, "GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", "bad-target"},
        {400, "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", "inconsistent-host"},
        {400, "GET http://a:81/ HTTP/1.1\r\nHost: a\r\n\r\n", "inconsistent-host"},
        {400, "GET https://a/ HTTP/1.1\r\nHost: a:80\r\n\r\n", "inconsistent-host"},
        // Host
        {400, "GET / HTTP/1.1\r\n\r\n", "no-host"},
        {400, get("Host: a\r\n"), "duplicate-host"},
        {400, get("hOST: b\r\n"), "duplicate-host"},
        {400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "bad-host"},
        {400, "GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", "bad-host"},
        {400, "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "bad-host"},
        {400, "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", "bad-host"},
        {400, "GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", "bad-host"},
        {400, "GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n", "bad-host"},
        {400, "GET / HTTP/1.1\r\nHost: a:1:2\r\n\r\n", "bad-host"},
        {400, "GET / HTTP/1.1\r\nHost: :80\r\n\r\n", "bad-host"},
        {400, "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", "bad-host"},
        {400, "GET / HTTP/1.1\r\nHost: [::1]x\r\n\r\n", "bad-host"},
        {400, "GET / HTTP/1.1\r\nHost: a%2\r\n\r\n", "bad-host"},
        // length
        {400, get("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), "ambiguous-length"},
        {400, get("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n"), "ambiguous-length"},
        {400, get("Content-Length: 1\r\nContent-Length: 2\r\n"), "bad-content-length"},
        {400, get("Content-Length: 1\r\nContent-Length: 1\r\n"), "bad-content-length"},
        {400, get("Content-Length: 1, 1\r\n"), "bad-content-length"},
        {400, get("Content-Length: 1, 2\r\n"), "bad-content-length"},
        {400, get("Content-Length:\r\n"), "bad-content-length"},
        {400, get("Content-Length: +1\r\n"), "bad-content-length"},
        {400, get("Content-Length: -1\r\n"), "bad-content-length"},
        {400, get("Content-Length: 0x1\r\n"), "bad-content-length"},
        {400, get("Content-Length: 1 2\r\n"), "bad-content-length"},
        {400, get("Content-Length: 1;\r\n"), "bad-content-length"},
        {400, get("Content-Length: 18446744073709551617\r\n"), "bad-content-length"},
        {400, get("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), "bad-transfer-encoding"},
        {400, get("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"), "bad-transfer-encoding"},
        {400, "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "bad-transfer-encoding"},
        {501, get("Transfer-Encoding: gzip, chunked\r\n"), "unknown-transfer-encoding"},
        {501, get("Transfer-Encoding: chunked, chunked\r\n"), "unknown-transfer-encoding"},
        {501, get("Transfer-Encoding: chunked;\r\n"), "unknown-transfer-encoding"},
        {501, get("Transfer-Encoding: xchunked\r\n"), "unknown-transfer-encoding"},
        {501, get("Transfer-Encoding: identity\r\n"), "unknown-transfer-encoding"},
        {501, get("Transfer-Encoding:\r\n"), "unknown-transfer-encoding"},
    };
    for (const Row& row : rows) {
        for (const std::size_t step : {std::size_t{1}, row.text.size()}) {
            CAPTURE(row.text, step);
            RequestHead head;
            const Fault fault = parse(row.text, head, step);
            CHECK(fault.status == row.status);
            CHECK(fault.code == row.code);
        }
    }
}

TEST_CASE("limits of a head") {
    const HeadLimits limits{.head_bytes = 1000, .target_bytes = 100, .fields = 5};
    RequestHead head;
    const auto with_target = [](std::size_t size) {
        return "GET /" + string(size - 1, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n";
    };
    CHECK(parse(with_target(100), head, 1, limits).status == 0);
    CHECK(parse(with_target(101), head, 1, limits).status == 414);
    CHECK(parse("GET /" + string(200, 'a'), head, 1, limits).status == 414); // before its line ends

    const auto with_size = [](std::size_t size) {
        string text = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
        return text + string(size - text.size() - 4, 'a') + "\r\n\r\n";
    };
    CHECK(parse(with_size(1000), head, 1, limits).status == 0);
    CHECK(parse(with_size(1001), head, 1, limits).status == 431);
    CHECK(parse(with_size(5000), head, 5000, limits).status == 431);

    string many = "GET / HTTP/1.1\r\nHost: a\r\n";
    for (int i = 0; i < 4; ++i)
        many += "X: y\r\n";
    CHECK(parse(many + "\r\n", head, 1, limits).status == 0);
    CHECK(parse(many + "X: y\r\n\r\n", head, 1, limits).status == 431);
    CHECK(parse(with_size(65536), head, 4096).status == 0);
    CHECK(parse(with_size(65537), head, 4096).status == 431);
}

TEST_CASE("what asks for an upgrade") {
    const auto upgrade = [](const string& lines) {
        RequestHead head;
        REQUIRE_FALSE(parse("GET / HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n", head));
        return head.upgrade;
    };
    CHECK(upgrade("Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"));
    CHECK(upgrade("Upgrade: websocket\r\nConnection: upgrade\r\nContent-Length: 0\r\n"));
    CHECK_FALSE(upgrade("Upgrade: websocket\r\n"));
    CHECK_FALSE(upgrade("Connection: upgrade\r\n"));
    CHECK_FALSE(upgrade("Connection: upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"));
    CHECK_FALSE(upgrade("Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n"));
    RequestHead old;
    REQUIRE_FALSE(parse("GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", old));
    CHECK_FALSE(old.upgrade);
}

TEST_CASE("no bytes make the scanner misbehave") {
    // Every single byte of a good head replaced by every other: it is refused or read, nothing else.
    const string good = "POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nX: y\r\n\r\n";
    unsigned served = 0;
    for (std::size_t at = 0; at < good.size(); ++at) {
        for (int byte = 0; byte < 256; ++byte) {
            string text = good;
            text[at] = static_cast<char>(byte);
            RequestHead head;
            const Fault fault = parse(text, head, text.size());
            served += !fault;
            if (!fault)
                CHECK((head.body.kind == BodyKind::length || text.find("Content-Length") == string::npos ||
                       text.find("Content-Length: ") != good.find("Content-Length: ")));
        }
    }
    CHECK(served > 500);
}
