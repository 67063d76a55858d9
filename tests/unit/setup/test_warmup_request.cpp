// Requests of a warm-up.
#include "src/setup/warmup_request.hpp"

#include <string>

#include "tests/catch.hpp"

using namespace kvmserver;

TEST_CASE("a warm-up request as it is sent") {
    CHECK(WarmupRequest{}.wire() ==
          "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: kvmserver-warmup\r\nConnection: close\r\n\r\n");
    CHECK(WarmupRequest{.method = "POST", .target = "/o", .fields = "uSer-agent: me\r\nHost: h\r\n", .body = "a=1"}
              .wire() ==
          "POST /o HTTP/1.1\r\nuSer-agent: me\r\nHost: h\r\nContent-Length: 3\r\nConnection: close\r\n\r\na=1");
    CHECK(WarmupRequest{.method = "PUT", .target = "/o", .fields = "", .body = ""}.wire().find("Content-Length: 0") !=
          std::string::npos);
}
