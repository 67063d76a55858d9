#include <string>

#include "src/capture/synthetic_request.hpp"
#include "tests/catch.hpp"

namespace {

unsigned status_of(const std::string& text) {
    kvmserver::SyntheticReply reply;
    reply.text = text;
    return reply.status();
}

} // namespace

TEST_CASE("the status of a program's reply") {
    CHECK(status_of("HTTP/1.1 200 OK\r\n\r\nhello") == 200);
    CHECK(status_of("HTTP/1.0 503\r\n\r\n") == 503);
    CHECK(status_of("HTTP/1.1 404") == 404); // the beginning is enough
}

TEST_CASE("interim replies are not the one that was asked for") {
    CHECK(status_of("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\n\r\n") == 201);
    CHECK(status_of("HTTP/1.1 102 Wait\r\nX: 1\r\n\r\nHTTP/1.1 103 Hints\r\n\r\nHTTP/1.1 500 No\r\n\r\n") == 500);
    CHECK(status_of("HTTP/1.1 100 Continue\r\n\r\n") == 0);
    CHECK(status_of("HTTP/1.1 100 Continue\r\nX: 1\r\n") == 0);
}

TEST_CASE("what is no reply of HTTP/1 has no status") {
    for (const char* text : {"", "HTTP/1.1 20", "HTTP/2 200 OK\r\n", "SSH-2.0-OpenSSH", "HTTP/1.1 2x0 OK\r\n\r\n",
                             "HTTP/1.1  200 OK\r\n\r\n", "hello HTTP/1.1 200"}) {
        CAPTURE(text);
        CHECK(status_of(text) == 0);
    }
}
