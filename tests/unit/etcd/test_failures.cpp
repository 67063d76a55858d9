// Services that break off, send odd pieces, or are no etcd.
#include <string>
#include <vector>

#include "src/etcd/client.hpp"
#include "src/etcd/watch.hpp"
#include "tests/catch.hpp"
#include "tests/unit/etcd/etcd_process.hpp"
#include "tests/unit/remote/server.hpp"

using namespace kvmserver::etcd;
using namespace kvmserver::etcd::test;
using kvmserver::remote::test::always;
using kvmserver::remote::test::has;
using kvmserver::remote::test::message_of;
using kvmserver::remote::test::Server;
using kvmserver::remote::test::Turn;

namespace {

constexpr const char* kFound =
    R"({"header":{"revision":"7"},"kvs":[{"key":"dC9h","mod_revision":"3","value":"dg=="}]})";
constexpr const char* kChanged = R"({"header":{"revision":"8"},"succeeded":true})";

Address address_of(const Server& server) { return {{server.url()}, "t/", ""}; }

Done put_one(Client& client) {
    const Change change{.key = "a", .value = "v"};
    return client.change({}, {&change, 1});
}

bool maybe_done(Client& client) {
    try {
        put_one(client);
        FAIL("no error");
    } catch (const Away& away) {
        return away.maybe_done;
    }
    return false;
}

std::string chunk(const std::string& text) {
    char size[16];
    std::snprintf(size, sizeof size, "%zx\r\n", text.size());
    return size + text + "\r\n";
}

constexpr const char* kStream = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

// A watch to which the whole of `text` is sent in pieces of `size` bytes, then the end.
Server::Handler streams(const std::string& text, std::size_t size) {
    return [=](Turn& turn) {
        turn.take_body();
        turn.send(kStream);
        for (std::size_t at = 0; at < text.size(); at += size)
            turn.send(chunk(text.substr(at, size)));
        turn.send(chunk(""));
        turn.hang_up();
    };
}

struct Told {
    Watch::End end;
    std::vector<Batch> batches;
    std::string why;
};
Told follow(const Server& server, const Limits& limits = short_limits()) {
    Client client(address_of(server), {}, limits);
    Watch watch(client);
    Told told;
    told.end = watch.follow(1, [&](Batch batch) { told.batches.push_back(std::move(batch)); });
    told.why = watch.why();
    return told;
}

constexpr const char* kWatched = R"({"result":{"header":{"revision":"3"},"created":true}}
{"result":{"header":{"revision":"3"},"events":[{"kv":{"key":"dC9h","mod_revision":"3","value":"dg=="}}]}}
{"result":{"header":{"revision":"9"}}}
)";

} // namespace

TEST_CASE("a change is never sent twice, not even on a kept connection that breaks") {
    int count = 0;
    Server server([&](Turn& turn) {
        turn.take_body();
        if (++count == 1)
            return turn.reply(200, kChanged);
        turn.hang_up(); // was it done?
    });
    Client client(address_of(server), {}, short_limits());
    CHECK(put_one(client).revision == 8);
    CHECK(maybe_done(client));
    CHECK(server.asked().size() == 2);
}

TEST_CASE("a read is sent again when a kept connection breaks") {
    int count = 0;
    Server server([&](Turn& turn) {
        turn.take_body();
        if (++count == 2)
            return turn.hang_up();
        turn.reply(200, kFound);
    });
    Client client(address_of(server), {}, short_limits());
    CHECK(client.get("a")->value == "v");
    CHECK(client.get("a")->value == "v");
    const auto asked = server.asked();
    REQUIRE(asked.size() == 3);
    CHECK(server.connections() == 2);
    CHECK(asked[2].body == asked[0].body);
    CHECK(asked[2].method == "POST");
    CHECK(asked[2].target == "/v3/kv/range");
    CHECK(asked[2].header("grpc-metadata-hasleader") == "true");
}

TEST_CASE("what etcd answers tells whether a change may be done") {
    const auto answers = [](unsigned status, const char* body) {
        Server server(always(status, body));
        Client client(address_of(server), {}, short_limits());
        return maybe_done(client);
    };
    CHECK(answers(503, R"({"message":"etcdserver: request timed out","code":14})"));
    CHECK_FALSE(answers(503, R"({"message":"etcdserver: no leader","code":14})"));
    CHECK_FALSE(answers(429, R"({"message":"etcdserver: too many requests","code":8})"));
    CHECK(answers(502, "<html>"));
    CHECK(answers(200, "<html>"));
    CHECK(answers(200, "{}"));
}

TEST_CASE("a change goes to the next endpoint if the first one certainly did not do it") {
    Server first(always(503, R"({"message":"etcdserver: no leader","code":14})")), second(always(200, kChanged));
    Client client({{first.url(), second.url()}, "t/", ""}, {}, short_limits());
    CHECK(put_one(client).applied);
    CHECK(put_one(client).applied); // begins with the second
    CHECK(first.asked().size() == 1);
    CHECK(second.asked().size() == 2);
    Server late(always(503, R"({"message":"etcdserver: request timed out","code":14})"));
    Client other({{late.url(), second.url()}, "t/", ""}, {}, short_limits());
    CHECK(maybe_done(other));
    CHECK(second.asked().size() == 2);
}

TEST_CASE("what is not etcd's is refused") {
    const auto message = [](unsigned status, const std::string& body) {
        Server server(always(status, body));
        Client client(address_of(server), {}, short_limits());
        CHECK_THROWS_AS(client.get("a"), Refused);
        return message_of([&] { client.get("a"); });
    };
    CHECK(has(message(404, "Not Found\n"), "is it an etcd"));
    CHECK(has(message(200, "<html>"), "no JSON object"));
    CHECK(has(message(200, "{}"), "no revision"));
    CHECK(has(message(200, R"({"header":{"revision":"7"},"kvs":[{"key":"dC9i","mod_revision":"3"}]})"), "another key"));
    CHECK(
        has(message(200, R"({"header":{"revision":"7"},"kvs":[{"key":"eC9h","mod_revision":"3"}]})"), "not asked for"));
    CHECK_FALSE(has(message(400, "{\"message\":\"a\\nb\",\"code\":3}"), "\n"));
}

TEST_CASE("a reply is of bounded size") {
    Limits limits = short_limits();
    limits.reply_bytes = 100'000;
    Server server(always(200, std::string(100'001, ' ')));
    Client client(address_of(server), {}, limits);
    CHECK(has(message_of([&] { client.get("a"); }), "more than 100000 bytes"));
    const Told told = follow(Server(streams(std::string(100'001, ' '), 10'000)), limits);
    CHECK(told.end == Watch::End::broken);
    CHECK(has(told.why, "longer than 100000 bytes"));
}

TEST_CASE("a watch comes in pieces of any size") {
    const std::string text = kWatched;
    for (const std::size_t size : {std::size_t{1}, std::size_t{7}, std::size_t{60}, text.size()}) {
        CAPTURE(size);
        const Told told = follow(Server(streams(text, size)));
        CHECK(told.end == Watch::End::broken);
        CHECK(has(told.why, "it ended the watch"));
        REQUIRE(told.batches.size() == 2);
        CHECK(told.batches[0].events.at(0).entry.value == "v");
        CHECK(told.batches[1].revision == 9);
    }
}

TEST_CASE("a watch ends with an error of etcd's, with or without an end of the line, or with nonsense") {
    const std::string error = R"({"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader"}})";
    for (const std::string& end : {error, error + "\n"}) {
        const Told told = follow(Server(streams(kWatched + end, 1000)));
        CHECK(told.end == Watch::End::broken);
        CHECK(told.batches.size() == 2);
        CHECK(has(told.why, "no leader"));
    }
    CHECK(has(follow(Server(streams("nonsense\n", 1000))).why, "no JSON object"));
    CHECK(has(follow(Server(always(503, error))).why, "no leader"));
    CHECK(has(follow(Server(always(404, "Not Found\n"))).why, "is it an etcd"));
}

TEST_CASE("a watch that is accepted and then silent is broken when its endpoint answers nothing else") {
    Server server([&](Turn& turn) {
        turn.take_body();
        turn.send(kStream);
        turn.send(chunk(kWatched));
        turn.take_all_there_is();
    }); // which takes no second connection meanwhile
    const Told told = follow(server);
    CHECK(told.end == Watch::End::broken);
    CHECK(told.batches.size() == 2);
    CHECK(has(told.why, "timed out"));
}
