// Which URL commands show for a route.
#include "src/cli/platform/public_url.hpp"
#include "tests/catch.hpp"
#include "tests/unit/cli/harness.hpp"

using namespace kvmserver::cli;
using namespace kvmserver::cli::platform;

namespace {

std::string shown(const std::string& route, const Listening& listening, const std::string& server = "") {
    return public_url(route, listening, server).text();
}

Listening on(const std::string& address, std::uint64_t port, bool tls = false) { return {address, port, tls}; }

} // namespace

TEST_CASE("the URL of a function on this host") {
    CHECK(shown("hello.localhost", on("127.0.0.1:8080", 8080)) == "http://hello.localhost:8080");
    CHECK(shown("hello.localhost", on("[::]:80", 80)) == "http://hello.localhost");
    CHECK(shown("hello.localhost/api/*", on("0.0.0.0:443", 443, true)) == "https://hello.localhost/api/");
    CHECK(shown("/api/*", on("127.0.0.1:8080", 8080)) == "http://localhost:8080/api/");
    CHECK(shown("example.com", on("0.0.0.0:8443", 8443, true)) == "https://example.com:8443");
    CHECK(shown("hello.localhost", on("/run/front.sock", 0)) == "http://hello.localhost at unix:/run/front.sock");
    // Only this address answers, and the name has another.
    CHECK(shown("hello.localhost", on("10.0.0.5:8080", 8080)) ==
          "http://10.0.0.5:8080 with the header Host: hello.localhost");
}

TEST_CASE("the URL of a function on another host") {
    const Listening there = on("0.0.0.0:8080", 8080);
    CHECK(shown("hello.localhost", there, "server") == "http://server:8080 with the header Host: hello.localhost");
    CHECK(shown("/api/*", there, "[fd00::1]") == "http://[fd00::1]:8080/api/");
    CHECK(shown("example.com", there, "server") == "http://example.com:8080");
}

TEST_CASE("names below localhost are known where a service resolves them") {
    const Folder folder;
    folder.write("nsswitch.conf", "passwd: files myhostname\nhosts: files dns\n");
    CHECK_FALSE(knows_names_below_localhost(folder.path("nsswitch.conf").c_str()));
    folder.write("nsswitch.conf", "hosts: files resolve [!UNAVAIL=return] dns\n");
    CHECK(knows_names_below_localhost(folder.path("nsswitch.conf").c_str()));
    CHECK_FALSE(knows_names_below_localhost(folder.path("none").c_str()));
}
