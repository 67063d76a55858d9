// One request to an API and what becomes of its reply.
#include "src/remote/client.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "src/remote/curl.hpp"
#include "tests/catch.hpp"
#include "tests/unit/remote/server.hpp"
#include "tests/unit/store/samples.hpp"

using namespace kvmserver;
using remote::Broken;
using remote::Client;
using remote::Problem;
using remote::test::always;
using remote::test::By;
using remote::test::has;
using remote::test::message_of;
using remote::test::Server;
using remote::test::Turn;
using tinykvm::ExitCode;
using tinykvm::UserError;

namespace {

remote::Server at(const Server& server, std::string token = "kvs_secret") { return server.where(std::move(token)); }

} // namespace

TEST_CASE("a request carries the token and its JSON, and its reply comes back parsed") {
    const By by = GENERATE(By::tcp, By::socket);
    const Server server(always(200, R"({"version":3})"), by);
    Client client(at(server));
    CHECK(client.call("POST", "/v1/functions/a", {{"x", 1}}, {{"If-Match", "e1"}}).at("version") == 3);
    CHECK(client.call("GET", "/v1/functions").at("version") == 3);
    const auto asked = server.asked();
    REQUIRE(asked.size() == 2);
    CHECK(asked[0].method == "POST");
    CHECK(asked[0].target == "/v1/functions/a");
    CHECK(asked[0].body == R"({"x":1})");
    CHECK(asked[0].header("content-type") == "application/json");
    CHECK(asked[0].header("if-match") == "e1");
    CHECK(asked[0].header("authorization") == "Bearer kvs_secret");
    CHECK(asked[1].method == "GET");
    CHECK(asked[1].body.empty());
    CHECK(asked[1].header("if-match").empty()); // of the request before
    CHECK(server.connections() == 1);           // it is kept
}

TEST_CASE("a reply without a body is null, and the URL may end with a slash") {
    const By by = GENERATE(By::tcp, By::socket);
    const Server server(always(204), by);
    remote::Server where = at(server);
    where.url += "/";
    CHECK(Client(where).call("DELETE", "/v1/functions/a").is_null());
    CHECK(server.asked().at(0).target == "/v1/functions/a");
}

TEST_CASE("an interim reply and its headers are not the reply") {
    const By by = GENERATE(By::tcp, By::socket);
    const Server server(
        [](Turn& turn) {
            turn.send("HTTP/1.1 103 Early Hints\r\nX-Which: interim\r\n\r\n"
                      "HTTP/1.1 200 OK\r\nx-which:  last \r\nContent-Length: 2\r\n\r\n{}");
        },
        by);
    const remote::Reply reply = Client(at(server)).ask({});
    CHECK(reply.status == 200);
    CHECK(reply.header("X-WHICH").starts_with("last"));
    CHECK(reply.header("X-Whic").empty());
}

TEST_CASE("loopback is reached by IPv6 too") {
    try {
        const Server server(always(200, "{}"), AF_INET6);
        CHECK(Client(at(server)).call("GET", "/").is_object());
    } catch (const tinykvm::HostError&) {
        WARN("this host has no [::1]");
    }
}

TEST_CASE("a Unix socket is reached however long its path is, without a token") {
    const store::test::TempFolder folder;
    const std::filesystem::path deep = folder.path() / std::string(100, 'a') / std::string(100, 'b');
    std::filesystem::create_directories(deep);
    const std::string socket = (deep / "api.sock").string();
    const Server server(always(200, R"({"ok":true})"), socket);
    Client client({.url = "", .socket = socket, .token = "", .ca_file = {}});
    CHECK(client.call("GET", "/v1/info").at("ok") == true);
    CHECK(client.shown() == "unix:" + socket);
    CHECK(server.asked().at(0).header("authorization").empty());
}

TEST_CASE("what a URL must be, before anything is sent to it") {
    for (const char* good : {"https://example.com", "https://example.com:8443/", "http://127.0.0.1:9", "http://[::1]:9",
                             "http://localhost:9/", "http://127.9.9.9"}) {
        CAPTURE(good);
        CHECK_NOTHROW(remote::check_url(good));
    }
    for (const char* bad : {"example.com", "ftp://example.com", "https://", "https:///v1", "https://example.com/api",
                            "https://user:secret@example.com", "http://127.0.0.1:80@example.com"}) {
        CAPTURE(bad);
        CHECK_THROWS_AS(remote::check_url(bad), UserError);
    }
    CHECK_FALSE(has(message_of([] { remote::check_url("https://user:secret@example.com"); }), "secret"));
}

TEST_CASE("a token never travels in the clear beyond this machine") {
    for (const char* url :
         {"http://example.com", "http://10.0.0.1:80", "http://127.0.0.1.example.com", "http://localhost.example.com",
          "http://127.example.com", "http://[::2]:80", "http://0.0.0.0"}) {
        CAPTURE(url);
        try {
            const Client client({.url = url, .socket = {}, .token = "kvs_secret", .ca_file = {}});
            FAIL_CHECK("it was accepted");
        } catch (const UserError& error) {
            CHECK(error.code() == ExitCode::usage);
            CHECK(has(error.what(), "use https://"));
        }
    }
}

TEST_CASE("a redirect is not followed: the token and the body are for the host that was named") {
    const Server other(always(200, R"({"stolen":true})"));
    for (const unsigned status : {301u, 302u, 307u, 308u}) {
        CAPTURE(status);
        const Server server(always(status, "", {{"Location", other.url() + "/v1/functions"}}));
        const auto moved = Client(at(server)).ask({.method = "GET", .target = "/v1/functions"});
        CHECK(moved.status == status);
        CHECK(moved.header("Location") == other.url() + "/v1/functions");
        const Server with_body(always(status, "{}", {{"Location", other.url() + "/v1/functions"}}));
        Client client(at(with_body));
        const std::string said = message_of([&] { client.call("POST", "/v1/functions", {{"secret", "value"}}); });
        CHECK(has(said, "does not answer as the API of kvmserver (status " + std::to_string(status) + ")"));
    }
    CHECK(other.connections() == 0);
}

TEST_CASE("what is for loopback goes to no proxy of the environment") {
    const Server proxy(always(200, R"({"from":"proxy"})")), server(always(200, R"({"from":"server"})"));
    for (const char* name : {"http_proxy", "all_proxy", "ALL_PROXY"})
        ::setenv(name, proxy.url().c_str(), 1);
    const auto reply = Client(at(server)).call("GET", "/v1/info");
    for (const char* name : {"http_proxy", "all_proxy", "ALL_PROXY"})
        ::unsetenv(name);
    CHECK(reply.at("from") == "server");
    CHECK(proxy.connections() == 0);
}

TEST_CASE("a password of .netrc is sent only where there is no token") {
    const store::test::TempFolder folder;
    std::ofstream(folder / ".netrc") << "machine 127.0.0.1 login ann password word\n";
    std::filesystem::permissions(folder / ".netrc", std::filesystem::perms{0600});
    const char* const home = std::getenv("HOME");
    const std::string before = home ? home : "";
    ::setenv("HOME", folder.path().c_str(), 1);
    const Server server(always(200, "{}"));
    Client(at(server, "")).call("GET", "/");
    Client(at(server)).call("GET", "/");
    home ? ::setenv("HOME", before.c_str(), 1) : ::unsetenv("HOME");
    CHECK(server.asked().at(0).header("authorization").starts_with("Basic "));
    CHECK(server.asked().at(1).header("authorization") == "Bearer kvs_secret");
}

TEST_CASE("nobody listens: worth another try, and the server is named") {
    const tinykvm::UniqueFd bound(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); // and does not listen
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    REQUIRE(::bind(bound.get(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0);
    REQUIRE(::getsockname(bound.get(), reinterpret_cast<sockaddr*>(&address), &bytes) == 0);
    const std::string url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    Client client({.url = url, .socket = {}, .token = "", .ca_file = {}});
    try {
        client.call("GET", "/v1/info");
        FAIL("somebody answered");
    } catch (const Broken& error) {
        CHECK(error.code() == ExitCode::unreachable);
        CHECK(has(error.what(), url));
    }
}

TEST_CASE("a server that never answers is left after the timeout, which the message names") {
    const By by = GENERATE(By::tcp, By::socket);
    const Server server([](Turn& turn) { turn.take_all_there_is(); }, by);
    remote::Server where = at(server);
    where.timeout_seconds = 0.05;
    Client client(where);
    try {
        client.call("GET", "/v1/info");
        FAIL("it answered");
    } catch (const Broken& error) {
        CHECK(has(error.what(), "--timeout gives it longer"));
    }
}
