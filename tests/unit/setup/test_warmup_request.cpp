// Requests of a warm-up.
#include "src/setup/warmup_request.hpp"

#include <string>

#include "tests/catch.hpp"

using namespace kvmserver;

TEST_CASE("a warm-up request as it is sent") {
    CHECK(WarmupRequest{}.wire(1) ==
          "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: kvmserver-warmup\r\nConnection: close\r\n\r\n");
    CHECK(WarmupRequest{}.wire(0) ==
          "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: kvmserver-warmup\r\nAccept: */*\r\n"
          "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: localhost\r\n"
          "Connection: close\r\n\r\n");
    CHECK(WarmupRequest{}.wire(2).find("\r\nSec-Fetch-Mode: navigate\r\n") != std::string::npos);
}

TEST_CASE("a warm-up request that names its headers is sent with these alone") {
    CHECK(
        WarmupRequest{.method = "POST", .target = "/o", .fields = "uSer-agent: me\r\nHost: h\r\n", .body = "a=1"}.wire(
            2) == "POST /o HTTP/1.1\r\nuSer-agent: me\r\nHost: h\r\nContent-Length: 3\r\nConnection: close\r\n\r\na=1");
    CHECK(WarmupRequest{.method = "PUT", .target = "/o", .fields = "", .body = ""}.wire(1).find("Content-Length: 0") !=
          std::string::npos);
}
