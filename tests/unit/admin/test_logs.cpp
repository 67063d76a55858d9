// Those who follow what functions print.
#include "tests/catch.hpp"
#include "tests/unit/admin/world.hpp"

#include <chrono>
#include <future>

using namespace kvmserver;
using namespace kvmserver::admin;
using namespace kvmserver::admin::test;
using namespace std::chrono_literals;

namespace {

const auto kPatience = 20s;

daemon::LogLine line(const std::string& text) {
    daemon::LogLine line;
    line.function = "hello";
    line.version = 1;
    line.stream = "out";
    line.text = text;
    return line;
}

} // namespace

TEST_CASE("a follower of a quiet function hears that the connection lives") {
    World world({.follow_quiet = 1ms});
    store::test::deploy(world.store, "hello", 1);
    Client client;
    const auto end = std::chrono::steady_clock::now() + kPatience;
    client.leaves = [&](const Reply& reply) {
        return reply.body.size() >= 2 || std::chrono::steady_clock::now() > end;
    };
    world.ask("GET", "/v1/functions/hello/logs?follow=1", client);
    CHECK(client.reply().status == 200);
    CHECK(client.reply().body.starts_with("\n\n"));
}

TEST_CASE("a follower of a talkative function hears only that") {
    World world; // a minute
    store::test::deploy(world.store, "hello", 1);
    Client client;
    bool told = false;
    client.leaves = [&](const Reply& reply) {
        if (!told)
            world.daemon.logs().add(line("something"));
        told = true;
        return reply.body.find("something") != reply.body.npos;
    };
    world.ask("GET", "/v1/functions/hello/logs?follow=1", client);
    CHECK(client.reply().body.find("\n\n") == std::string::npos);
    CHECK_FALSE(client.reply().body.starts_with("\n"));
}

TEST_CASE("a follower hears how many requests it missed, and older clients of none") {
    World world;
    store::test::deploy(world.store, "hello", 1);
    const std::int64_t created = store::Functions(world.store).describe("hello").created;
    const auto ring = world.daemon.logs().requests().ring("hello", created);
    const auto followed = [&](const std::string& query, const std::string& end) {
        Client client;
        bool told = false;
        client.leaves = [&](const Reply& reply) {
            if (!std::exchange(told, true)) {
                for (std::size_t i = 0; i < daemon::RequestRing::kKept + 7; ++i)
                    ring->add({.ms = created + 1, .version = 1, .status = 200, .method = "GET", .path = "/flood"});
                world.daemon.logs().add(line("the end"));
            }
            return reply.body.find(end) != reply.body.npos;
        };
        world.ask("GET", "/v1/functions/hello/logs?follow=1&tail=1" + query, client);
        return client.reply().body;
    };
    CHECK(followed("", "the end").find("flood") == std::string::npos);
    const std::string body = followed("&requests=1", "left out");
    CHECK(body.find("\"7 requests were left out\"") != std::string::npos);
    CHECK(body.find("GET /flood 200") != std::string::npos);
}

TEST_CASE("followers leave places for others") {
    World world({.max_followers = 2});
    store::test::deploy(world.store, "hello", 1);
    const std::string path = "/v1/functions/hello/logs?follow=1";
    const std::string token = store::Tokens(world.store).create("far", store::kScopeRead, "", {});
    std::atomic<int> begun = 0;
    std::promise<void> over;
    const std::shared_future<void> end = over.get_future().share();
    const auto follow = [&](const std::string& with) {
        return std::async(std::launch::async, [&, with] {
            Client client;
            bool counted = false;
            client.leaves = [&](const Reply&) {
                begun += !std::exchange(counted, true);
                return end.wait_for(0s) == std::future_status::ready;
            };
            world.ask("GET", path, client, {}, with);
            return client.reply().status;
        });
    };
    std::vector<std::future<unsigned>> followers;
    followers.push_back(follow(token));
    followers.push_back(follow(token));
    const auto patience = std::chrono::steady_clock::now() + kPatience;
    while (begun < 2 && std::chrono::steady_clock::now() < patience)
        std::this_thread::yield();
    REQUIRE(begun == 2);

    Client third;
    third.leaves = [](const Reply&) { return true; }; // should it be let in
    world.ask("GET", path, third, {}, token);
    CHECK(third.reply().status == 503);
    CHECK(third.reply().json()["code"] == "busy");
    // Without follow it is a request as any other; and TCP does not lock out this host's users.
    CHECK(world.ask("GET", "/v1/functions/hello/logs", "", {}, token).status == 200);
    Client local;
    local.leaves = [](const Reply&) { return true; };
    world.ask("GET", path, local);
    CHECK(local.reply().status == 200);

    over.set_value();
    for (auto& follower : followers)
        CHECK(follower.get() == 200);
    Client next;
    next.leaves = [](const Reply&) { return true; };
    world.ask("GET", path, next, {}, token);
    CHECK(next.reply().status == 200); // their places are free again
}
