// What only the client of a Unix socket does itself; the rest is tested with libcurl's in test_client and test_replies.
#include <string>

#include "src/remote/client.hpp"
#include "tests/catch.hpp"
#include "tests/unit/remote/server.hpp"

using namespace kvmserver;
using remote::Broken;
using remote::Client;
using remote::test::By;
using remote::test::has;
using remote::test::message_of;
using remote::test::Turn;

TEST_CASE("a kept connection that the server has closed is made anew") {
    const remote::test::Server server(
        [](Turn& turn) {
            turn.reply(200, R"({"ok":true})");
            turn.hang_up(); // as a server does with a connection that was idle for long
        },
        By::socket);
    Client client(server.where());
    for (int i = 0; i < 3; ++i)
        CHECK(client.call("POST", "/", {{"number", i}}).at("ok") == true);
    CHECK(server.connections() == 3);
    CHECK(server.asked().at(2).body == R"({"number":2})");
}

TEST_CASE("a server that closes each connection without a reply is not asked for ever") {
    const remote::test::Server server([](Turn& turn) { turn.hang_up(); }, By::socket);
    Client client(server.where());
    CHECK_THROWS_AS(client.call("GET", "/"), Broken);
    CHECK(server.connections() == 1);
}

TEST_CASE("a reply in single bytes, and one that ends with its connection, come whole") {
    const std::string body = R"({"long":")" + std::string(500, 'x') + "\"}";
    const bool chunked = GENERATE(true, false);
    const remote::test::Server server(
        [&](Turn& turn) {
            std::string text = chunked ? "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" +
                                             std::string("1ff;x=y\r\n") + body + "\r\n0\r\nX-Sum: 1\r\n\r\n"
                                       : "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 200 OK\r\n\r\n" + body;
            for (const char& byte : text)
                turn.send({&byte, 1});
            if (!chunked)
                turn.hang_up();
        },
        By::socket);
    REQUIRE(body.size() == 0x1ff);
    Client client(server.where());
    for (int i = 0; i < 2; ++i)
        CHECK(client.call("GET", "/").dump() == body);
    CHECK(server.connections() == (chunked ? 1 : 2));
}

TEST_CASE("a refusal that comes before a long body was taken is told") {
    const remote::test::Server server(
        [](Turn& turn) {
            turn.take_body(1000);
            turn.send("HTTP/1.1 413 Too Large\r\nContent-Length: 17\r\n\r\n{\"detail\":\"much\"}");
            turn.hang_up();
        },
        By::socket);
    Client client(server.where());
    for (int i = 0; i < 2; ++i) {
        const remote::Reply reply = client.ask({.method = "PUT", .target = "/", .body = std::string(16 << 20, 'x')});
        CHECK(reply.status == 413);
        CHECK(reply.body == R"({"detail":"much"})");
    }
}

TEST_CASE("what is no HTTP is said to be none") {
    for (const char* text :
         {"HELLO\r\n\r\n", "HTTP/1.1 200 OK\nServer: x\n\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\n"}) {
        CAPTURE(text);
        const remote::test::Server server(
            [&](Turn& turn) {
                turn.send(text);
                turn.take_all_there_is();
            },
            By::socket);
        Client client(server.where());
        CHECK(has(message_of([&] { client.call("GET", "/"); }), "does not answer as HTTP: "));
    }
}

TEST_CASE("a reply that drips in without end is left after the timeout") {
    const remote::test::Server server(
        [](Turn& turn) {
            turn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            while (turn.open())
                turn.send("1\r\nx\r\n");
        },
        By::socket);
    remote::Server where = server.where();
    where.timeout_seconds = 0.05;
    Client client(where);
    CHECK(has(message_of([&] { client.call("GET", "/"); }), "--timeout gives it longer"));
}

TEST_CASE("a transfer may take as long as bytes move, but not be silent") {
    const remote::test::Server server(
        [](Turn& turn) {
            turn.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n1");
            turn.take_all_there_is();
        },
        By::socket);
    remote::Server where = server.where();
    where.timeout_seconds = 0.05;
    std::string got;
    const auto sink = [&](std::string_view bytes) {
        got += bytes;
        return true;
    };
    Client client(where);
    CHECK(has(message_of([&] { client.ask({.target = "/", .sink = sink, .transfer = true}); }),
              "--timeout gives it longer"));
    CHECK(got == "1");
}
