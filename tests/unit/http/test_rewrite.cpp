// What leaves the front.
#include <nlohmann/json.hpp>

#include "src/http/problem.hpp"
#include "src/http/rewrite.hpp"
#include "tests/catch.hpp"
#include "tests/unit/http/parse.hpp"

using namespace http_test;
using std::string;

namespace {

string to_program(const string& text, const RequestExtras& extras = {}) {
    RequestHead head;
    const Fault fault = parse(text, head);
    CAPTURE(text, fault.detail);
    REQUIRE_FALSE(fault);
    string out;
    append_request(out, head, extras);
    return out;
}

string to_client(const string& text, ClientConnection connection, ReplyFraming framing, ReplyContext context = {}) {
    ReplyHead head;
    REQUIRE_FALSE(parse(text, head, context));
    string out;
    append_reply(out, head, connection, framing);
    return out;
}

} // namespace

TEST_CASE("the program sees the client's bytes and Connection: close") {
    CHECK(to_program("gEt /x HTTP/1.1\r\nhOST:a\r\nX-Odd:   b \r\nTE: trailers\r\n\r\n") ==
          "gEt /x HTTP/1.1\r\nhOST:a\r\nX-Odd:   b \r\nTE: trailers\r\nConnection: close\r\n\r\n");
    CHECK(to_program("GET / HTTP/1.1\r\nconnection: keep-alive\r\nHost: a\r\nConnection: x\r\nB: c\r\n\r\n") ==
          "GET / HTTP/1.1\r\nconnection: close\r\nHost: a\r\nB: c\r\n\r\n");
    CHECK(to_program("GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, upgrade\r\nUpgrade: websocket\r\n\r\n") ==
          "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    CHECK(to_program("GET / HTTP/1.0\r\n\r\n") == "GET / HTTP/1.0\r\nConnection: close\r\n\r\n");
    CHECK(to_program("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: liar\r\n\r\n",
                     {.traceparent = "00-1", .forwarded_for = "10.0.0.1", .forwarded_proto = "https"}) ==
          "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\ntraceparent: 00-1\r\nX-Forwarded-For: 10.0.0.1\r\n"
          "X-Forwarded-Proto: https\r\nX-Forwarded-Host: a\r\n\r\n");
}

TEST_CASE("the client sees the program's bytes but for hop-by-hop headers") {
    CHECK(to_client("HTTP/1.0 200 Fine \r\ndAte:x\r\nConnection: close\r\nKeep-Alive: 5\r\nContent-Length: 2\r\n\r\n",
                    ClientConnection::keep, {}) == "HTTP/1.1 200 Fine \r\ndAte:x\r\nContent-Length: 2\r\n\r\n");
    CHECK(to_client("HTTP/1.1 200 OK\r\n\r\n", ClientConnection::close, {.chunked = true}) ==
          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
    CHECK(to_client("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nA: b\r\n\r\n", ClientConnection::close,
                    {.plain = true}) == "HTTP/1.1 200 OK\r\nA: b\r\nConnection: close\r\n\r\n");
    CHECK(to_client("HTTP/1.1 204 No\r\nContent-Length: 9\r\n\r\n", ClientConnection::keep_1_0, {}) ==
          "HTTP/1.1 204 No\r\nConnection: keep-alive\r\n\r\n");
    ReplyHead head;
    const string early = "HTTP/1.1 103 Early\r\nLink: x\r\nContent-Length: 5\r\nConnection: close\r\n\r\n";
    REQUIRE_FALSE(parse(early, head));
    string out;
    append_interim(out, head);
    CHECK(out == "HTTP/1.1 103 Early\r\nLink: x\r\n\r\n");
}

TEST_CASE("problems") {
    const Problem problem{kvmserver::request::Outcome::queue_full, 503, "no-machine", "Say \"when\"\n\xff", "Wait.", 3};
    const string reply = problem_reply(problem, "0123", true, false);
    ReplyHead head;
    REQUIRE_FALSE(parse(reply, head));
    const string body = reply.substr(reply.find("\r\n\r\n") + 4);
    CHECK(head.status == 503);
    CHECK(head.body.length == body.size());
    CHECK(reply.find("\r\nRetry-After: 3\r\n") != string::npos);
    CHECK(reply.find("\r\nConnection: close\r\n") != string::npos);
    CHECK(reply.find("\r\nContent-Type: application/problem+json\r\n") != string::npos);
    const auto json = nlohmann::json::parse(body);
    CHECK(json["status"] == 503);
    CHECK(json["code"] == "no-machine");
    CHECK(json["title"] == "Service Unavailable");
    CHECK(json["request_id"] == "0123");
    CHECK(json["hint"] == "Wait.");
    CHECK(json["detail"] == "Say \"when\"\n\xef\xbf\xbd");
    CHECK(problem_reply(problem, "0123", true, true) == reply.substr(0, reply.size() - body.size()));
}
