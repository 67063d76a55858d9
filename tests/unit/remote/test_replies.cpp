// Refusals as exit codes and words, replies that break off, and replies that are handed on as they come.
#include <cstddef>
#include <cstring>
#include <string>

#include "src/remote/client.hpp"
#include "tests/catch.hpp"
#include "tests/unit/remote/server.hpp"

using namespace kvmserver;
using remote::Broken;
using remote::Client;
using remote::Problem;
using remote::test::always;
using remote::test::By;
using remote::test::has;
using remote::test::Turn;
using tinykvm::ExitCode;
using tinykvm::UserError;

namespace {

Problem problem_of(By by, unsigned status, const std::string& body,
                   const std::string& type = "application/problem+json") {
    const remote::test::Server server(always(status, body, {{"Content-Type", type}}), by);
    Client client(server.where());
    try {
        client.call("GET", "/v1/functions/a");
    } catch (const Problem& problem) {
        return problem;
    }
    throw std::logic_error("it was no problem");
}

} // namespace

TEST_CASE("a refusal's words, its name and its exit code come from the problem") {
    const By by = GENERATE(By::tcp, By::socket);
    const Problem gone =
        problem_of(by, 404, R"({"code":"not-found","detail":"there is no function a","status":404,"extra":7})");
    CHECK(std::string(gone.what()) == "there is no function a");
    CHECK(gone.code() == ExitCode::not_found);
    CHECK(gone.status() == 404);
    CHECK(gone.name() == "not-found");
    CHECK(gone.document().at("extra") == 7);

    CHECK(problem_of(by, 412, R"({"code":"changed","detail":"d"})").code() == ExitCode::conflict);
    CHECK(problem_of(by, 422, R"({"code":"bad-snapshot","detail":"d"})").code() == ExitCode::bad_snapshot);
    CHECK(problem_of(by, 503, R"({"code":"no-kvm","detail":"d"})").code() == ExitCode::no_kvm);
    CHECK(problem_of(by, 400, R"({"detail":"d"})").name().empty());
}

TEST_CASE("who may not is told which server said so, and its hint") {
    const By by = GENERATE(By::tcp, By::socket);
    const Problem refused = problem_of(by, 403, R"({"code":"forbidden","detail":"no","hint":"ask for scope deploy"})");
    CHECK(refused.code() == ExitCode::not_permitted);
    CHECK(has(refused.what(), by == By::tcp ? "http://127.0.0.1:" : "unix:/"));
    CHECK(has(refused.what(), ": no: ask for scope deploy"));
    CHECK(std::string(problem_of(by, 409, R"({"detail":"d","hint":"h"})").what()) == "d"); // the words are enough
}

TEST_CASE("a refusal that is no problem of ours still has a status and an exit code") {
    const By by = GENERATE(By::tcp, By::socket);
    for (const char* body : {"", "<html>Bad gateway</html>", R"({"detail":7})", R"(["detail"])", R"({"detail":"cut)"}) {
        CAPTURE(body);
        const Problem problem = problem_of(by, 502, body, "text/html");
        CHECK(problem.code() == ExitCode::failure);
        CHECK(has(problem.what(), "answers with status 502"));
        CHECK(problem.document() == nlohmann::json::object());
    }
    CHECK(problem_of(by, 401, "").code() == ExitCode::not_permitted);
    CHECK(problem_of(by, 504, "").code() == ExitCode::unreachable);
    CHECK(problem_of(by, 409, R"({"detail":"d","code":5,"hint":[]})").name().empty());
}

TEST_CASE("a reply that breaks off is never taken for a whole one") {
    const By by = GENERATE(By::tcp, By::socket);
    for (const char* part :
         {"HTTP/1.1 20", "HTTP/1.1 200 OK\r\nContent-Le", "HTTP/1.1 204 No\r\n", "HTTP/1.1 103 Hints\r\n\r\n",
          "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{\"a\":1}",
          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n{\"a\":1}\r\n",
          "HTTP/1.1 404 No\r\nContent-Length: 50\r\n\r\n{\"detail\":\"d\"}", ""}) {
        CAPTURE(part);
        const remote::test::Server server(
            [part](Turn& turn) {
                turn.send(part);
                turn.hang_up();
            },
            by);
        Client client(server.where());
        CHECK_THROWS_AS(client.call("GET", "/v1/info"), Broken);
    }
}

TEST_CASE("a whole reply that is not the API's is said to be none") {
    const By by = GENERATE(By::tcp, By::socket);
    for (const char* body : {"{\"a\":", "<html>", "{} {}"}) {
        CAPTURE(body);
        const remote::test::Server server(always(200, body), by);
        Client client(server.where());
        try {
            client.call("GET", "/v1/info");
            FAIL_CHECK("it was taken");
        } catch (const UserError& error) {
            CHECK(error.code() == ExitCode::failure);
            CHECK(has(error.what(), "does not answer as the API of kvmserver"));
        }
    }
}

TEST_CASE("the connection after one that broke is a new one") {
    const By by = GENERATE(By::tcp, By::socket);
    int turns = 0;
    const remote::test::Server server(
        [&turns](Turn& turn) {
            if (++turns > 1)
                return turn.reply(200, R"({"ok":true})");
            turn.send("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{");
            turn.hang_up();
        },
        by);
    Client client(server.where());
    CHECK_THROWS_AS(client.call("GET", "/"), Broken);
    CHECK(client.call("GET", "/").at("ok") == true);
    CHECK(server.connections() == 2);
}

TEST_CASE("a long reply is handed on as it comes; a refusal is not, but kept for its words") {
    const By by = GENERATE(By::tcp, By::socket);
    const std::string log(300'000, 'x');
    std::string got;
    const auto sink = [&](std::string_view bytes) {
        got += bytes;
        return true;
    };
    {
        const remote::test::Server server(always(200, log), by);
        const remote::Reply reply = Client(server.where()).ask({.target = "/v1/logs", .sink = sink, .transfer = true});
        CHECK(got == log);
        CHECK(reply.body.empty());
    }
    got.clear();
    const remote::test::Server server(always(404, R"({"detail":"none"})"), by);
    const remote::Reply reply = Client(server.where()).ask({.target = "/v1/logs", .sink = sink, .transfer = true});
    CHECK(got.empty());
    CHECK(reply.body == R"({"detail":"none"})");
}

TEST_CASE("who has enough ends an endless reply without an error") {
    const By by = GENERATE(By::tcp, By::socket);
    const remote::test::Server server(
        [](Turn& turn) {
            turn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nline\n\r\n");
            turn.take_all_there_is(); // more may come at any time
        },
        by);
    std::string got;
    const auto one = [&](std::string_view bytes) {
        got += bytes;
        return false;
    };
    CHECK(Client(server.where()).ask({.target = "/v1/logs", .sink = one, .endless = true}).status == 200);
    CHECK(got == "line\n");
}

TEST_CASE("what the source and the sink of bytes throw reaches the caller as it is") {
    const By by = GENERATE(By::tcp, By::socket);
    struct Own {};
    const remote::test::Server server(always(200, "{}"), by);
    Client client(server.where());
    const auto throws = [](char*, std::size_t) -> std::size_t { throw Own{}; };
    CHECK_THROWS_AS(client.ask({.method = "PATCH", .target = "/", .source = throws, .body_bytes = 5}), Own);
    const auto also = [](std::string_view) -> bool { throw Own{}; };
    CHECK_THROWS_AS(client.ask({.target = "/", .sink = also}), Own);
    CHECK(client.call("GET", "/").is_object()); // it is good for more
}

TEST_CASE("a refusal that comes before the body has gone is told, not that the connection broke") {
    const By by = GENERATE(By::tcp, By::socket);
    const remote::test::Server server(
        [](Turn& turn) {
            turn.take_body(1000);
            turn.send("HTTP/1.1 413 Too Large\r\nContent-Length: 17\r\nConnection: close\r\n\r\n{\"detail\":\"much\"}");
            turn.take_all_there_is();
        },
        by);
    Client client(server.where());
    const auto zeros = [](char* into, std::size_t most) {
        std::memset(into, 0, most);
        return most;
    };
    const remote::Reply reply =
        client.ask({.method = "PATCH", .target = "/", .source = zeros, .body_bytes = 64u << 20, .transfer = true});
    CHECK(reply.status == 413);
    CHECK(reply.body == R"({"detail":"much"})");
    CHECK(reply.sent < 64u << 20);
}
