// Files of warm-up requests.
#include "src/cli/options/warmup_file.hpp"

#include <string>

#include "tests/catch.hpp"
#include "tinykvm/base/error.hpp"

using namespace kvmserver;
using cli::parse_warmup_requests;

namespace {

std::string refusal_of(std::string_view text) {
    try {
        (void)parse_warmup_requests(text, "w.http");
    } catch (const tinykvm::UserError& error) {
        CHECK(error.code() == tinykvm::ExitCode::usage);
        return error.what();
    }
    return "";
}

} // namespace

TEST_CASE("requests of a file") {
    const auto all = parse_warmup_requests("# of the shop\n"
                                           "GET /render?id=1\r\n"
                                           "\n"
                                           "### an order\n"
                                           "// comment\n"
                                           "POST http://shop.test:8080/orders HTTP/1.1\n"
                                           "Content-Type: application/json\n"
                                           "# comment\n"
                                           "X-Empty:\n"
                                           "\n"
                                           "{\"name\":\n"
                                           "\n"
                                           "  \"tea\"}\n"
                                           "\n"
                                           "###\n"
                                           "###\n"
                                           "/plain\n",
                                           "w.http");
    REQUIRE(all.size() == 3);
    CHECK(all[0] == WarmupRequest{.method = "GET", .target = "/render?id=1", .fields = "", .body = ""});
    CHECK(all[1] == WarmupRequest{.method = "POST",
                                  .target = "/orders",
                                  .fields = "Host: shop.test:8080\r\nContent-Type: application/json\r\nX-Empty: \r\n",
                                  .body = "{\"name\":\n\n  \"tea\"}"});
    CHECK(all[2].name() == "GET /plain");
}

TEST_CASE("a header Host counts more than the URL's") {
    const auto all = parse_warmup_requests("GET http://a.test\nHost: b.test\n", "w.http");
    REQUIRE(all.size() == 1);
    CHECK(all[0].target == "/");
    CHECK(all[0].fields == "Host: b.test\r\n");
}

TEST_CASE("what is no warm-up request is refusal_of with its line") {
    CHECK(refusal_of("") == "w.http: has no request; write one, as GET /path");
    CHECK(refusal_of("# only\n###\n") == "w.http: has no request; write one, as GET /path");
    CHECK(refusal_of("GET x\n").starts_with("w.http:1: 'x' must start with '/'"));
    CHECK(refusal_of("\nGET /a b\n").starts_with("w.http:2: '/a b' must not hold spaces"));
    CHECK(refusal_of("get /\n").starts_with("w.http:1: 'get' is no method"));
    CHECK(refusal_of("G\x1bT /\n").find('\x1b') == std::string::npos);
    CHECK(refusal_of("CONNECT /\n").starts_with("w.http:1: CONNECT"));
    CHECK(refusal_of("GET /{{id}}\n").starts_with("w.http:1: variables are not known here"));
    CHECK(refusal_of("GET /\nX-Token: {{token}}\n").starts_with("w.http:2: variables"));
    CHECK(refusal_of("GET /\nGET /b\n").starts_with("w.http:2: a header is NAME: VALUE"));
    CHECK(refusal_of("GET /\ncontent-length: 3\n").starts_with("w.http:2: content-length is written by kvmserver"));
    CHECK(refusal_of("GET /\nA: b\x01\n").starts_with("w.http:2: the value of A has a control character"));
    CHECK(refusal_of("POST /\n\n< ./body.json\n").starts_with("w.http:3: bodies from files and scripts are not read"));
    std::string many;
    for (int i = 0; i < 65; ++i)
        many += "GET /\n###\n";
    CHECK(refusal_of(many).find("more than 64 requests") != std::string::npos);
}
