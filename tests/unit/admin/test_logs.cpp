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

