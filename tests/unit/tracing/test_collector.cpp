// Where spans are sent, with which headers, and what a collector's reply means.
#include "src/tracing/collector.hpp"

#include <sys/stat.h>

#include <fstream>

#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"
#include "tinykvm/base/error.hpp"

using namespace kvmserver;
using namespace kvmserver::tracing;
using How = Sent::How;

TEST_CASE("a URL without a path gets that of OTLP") {
    CHECK(traces_url("http://127.0.0.1:4318") == "http://127.0.0.1:4318/v1/traces");
    CHECK(traces_url("https://a.example/") == "https://a.example/v1/traces");
    CHECK(traces_url("http://[::1]:4318/") == "http://[::1]:4318/v1/traces");
    CHECK(traces_url("http://a/custom/") == "http://a/custom/");
    for (const char* bad : {"", "a:4318", "ftp://a", "http://", "http:///x", "http://:1", "http://u:p@a", "http://a b",
                            "http://a/x?y", "http://a\r\nX: y"}) {
        CAPTURE(bad);
        CHECK_THROWS_AS(traces_url(bad), tinykvm::UserError);
    }
}

TEST_CASE("headers are read from a file that not everyone may read") {
    const store::test::TempFolder folder;
    const std::string file = (folder / "headers").string();
    const auto write = [&](const std::string& text) {
        std::ofstream(file) << text;
        ::chmod(file.c_str(), 0640);
    };
    write("# a comment\n\nAuthorization:  Bearer a:b \r\nx-b: 1");
    CHECK(read_headers(file) == Headers{{"Authorization", "Bearer a:b"}, {"x-b", "1"}});
    for (const char* bad : {"name", "a b: c", ": c", "a:", "a: \x01"}) {
        CAPTURE(bad);
        write(bad);
        CHECK_THROWS_AS(read_headers(file), tinykvm::UserError);
    }
    write("a: b");
    ::chmod(file.c_str(), 0644);
    CHECK_THROWS_AS(read_headers(file), tinykvm::UserError);
    CHECK_THROWS_AS(read_headers((folder / "nothing").string()), tinykvm::UserError);
}

TEST_CASE("what a reply means") {
    CHECK(understand(200, "{}", "").how == How::accepted);
    CHECK(understand(202, "this is no JSON", "").how == How::accepted);
    for (const unsigned later : {429u, 502u, 503u, 504u})
        CHECK(understand(later, "", "").how == How::try_later);
    for (const unsigned refused : {0u, 301u, 400u, 401u, 404u, 413u, 500u})
        CHECK(understand(refused, "", "").how == How::refused);
    CHECK(understand(503, "", " 7\r\n").wait == std::chrono::seconds(7));
    CHECK(understand(503, "", " 99999999\r\n").wait == std::chrono::seconds(3600));
    CHECK(understand(503, "", " Wed, 21 Oct 2026 07:28:00 GMT\r\n").wait.count() == 0);
}

TEST_CASE("a collector that rejects some spans is believed as far as it makes sense") {
    const Sent sent =
        understand(200, R"({"partialSuccess":{"rejectedSpans":"3","errorMessage":"too\nlong\u001b[31m"}})", "");
    CHECK(sent.how == How::accepted);
    CHECK(sent.rejected == 3);
    CHECK(sent.why == "too long [31m");
    CHECK(understand(200, R"({"partialSuccess":{"rejectedSpans":4}})", "").rejected == 4);
    for (const char* none : {R"({"partialSuccess":{"rejectedSpans":"0","errorMessage":"a warning"}})",
                             R"({"partialSuccess":{"rejectedSpans":-1}})", R"({"partialSuccess":[]})",
                             R"({"partialSuccess":{"rejectedSpans":{}}})", "[1]"}) {
        CAPTURE(none);
        CHECK(understand(200, none, "").rejected == 0);
        CHECK(understand(200, none, "").why.empty());
    }
}

TEST_CASE("headers do not leave this host in the clear") {
    CHECK_THROWS_AS(send_to("http://a.example/v1/traces", {{"a", "b"}}), tinykvm::UserError);
}
