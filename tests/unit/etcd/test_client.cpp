// The client with a real etcd.
#include "src/etcd/client.hpp"

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "src/etcd/base64.hpp"
#include "tests/catch.hpp"
#include "tests/unit/etcd/etcd_process.hpp"

using namespace kvmserver::etcd;
using namespace kvmserver::etcd::test;

namespace {

constexpr std::int64_t kMany = 1000;

std::vector<std::string> keys_of(const Found& found) {
    std::vector<std::string> keys;
    for (const Entry& entry : found.entries)
        keys.push_back(entry.key);
    return keys;
}

using Keys = std::vector<std::string>;

Done put(Client& client, const std::string& key, const std::string& value) {
    const Change change{.key = key, .value = value};
    return client.change({}, {&change, 1});
}

Done change_if(Client& client, Condition condition, Change change) {
    return client.change({&condition, 1}, {&change, 1});
}

} // namespace

TEST_CASE("keys, values and transactions") {
    if (!have_etcd())
        return;
    Etcd etcd;
    Client client(etcd.address(), {}), other(etcd.address("testing/"), {});
    using Of = Condition::Of;

    SECTION("a key is created once, and changed by whom knows its revision or value") {
        CHECK_FALSE(client.get("a"));
        const Condition missing{.of = Of::created, .key = "a"};
        const Done made = change_if(client, missing, {.key = "a", .value = "one"});
        CHECK(made.applied);
        const Done again = change_if(client, missing, {.key = "a", .value = "two"});
        CHECK_FALSE(again.applied);
        CHECK(again.revision == made.revision);
        auto found = client.get("a");
        REQUIRE(found);
        CHECK(found->key == "a");
        CHECK(found->value == "one");
        CHECK(found->created == made.revision);
        CHECK(found->changed == made.revision);
        CHECK_FALSE(
            change_if(client, {.of = Of::changed, .key = "a", .revision = 1}, {.key = "a", .value = "x"}).applied);
        const Done changed =
            change_if(client, {.of = Of::changed, .key = "a", .revision = made.revision}, {.key = "a", .value = "two"});
        CHECK(changed.applied);
        found = client.get("a");
        CHECK((found && found->created == made.revision && found->changed == changed.revision));
        CHECK_FALSE(
            change_if(client, {.of = Of::value, .key = "a", .value = "one"}, {.key = "a", .value = {}}).applied);
        CHECK(change_if(client, {.of = Of::value, .key = "a", .value = "two"}, {.key = "a", .value = {}}).applied);
        CHECK_FALSE(client.get("a"));
    }
    SECTION("all changes of a transaction are made, or none") {
        const std::vector<Change> both{{.key = "a", .value = "1"}, {.key = "b", .value = "2"}};
        const std::vector<Condition> conditions{{.of = Of::created, .key = "a"}, {.of = Of::created, .key = "b"}};
        put(client, "b", "0");
        CHECK_FALSE(client.change(conditions, both).applied);
        CHECK_FALSE(client.get("a"));
        const Done done = client.change(std::span(conditions).first(1), both);
        CHECK(done.applied);
        CHECK(client.get("a")->changed == done.revision);
        CHECK(client.get("b")->changed == done.revision);
        const std::vector<Change> twice{{.key = "a", .value = "1"}, {.key = "a", .value = "2"}};
        CHECK_THROWS_AS(client.change({}, twice), Refused);
    }
    SECTION("keys and values are any bytes, and a value may be empty") {
        std::string all;
        for (int i = 0; i < 256; ++i)
            all += static_cast<char>(i);
        put(client, all, all);
        put(client, "empty", "");
        CHECK(client.get(all)->value == all);
        CHECK(client.get("empty")->value.empty());
        CHECK(keys_of(client.range("", "", kMany, Values::with)) == Keys{all, "empty"});
        CHECK_THROWS_AS(put(client, "big", std::string(3 << 20, 'x')), Refused);
    }
    SECTION("ranges") {
        for (const char* key : {"a/1", "a/2", "a/2x", "a/3", "a", "b"})
            put(client, key, "v");
        const Done last = put(other, "a/9", "of another prefix");
        const Found all = client.range("", "", kMany, Values::with);
        CHECK(keys_of(all) == Keys{"a", "a/1", "a/2", "a/2x", "a/3", "b"});
        CHECK(all.revision == last.revision);
        CHECK_FALSE(all.more);
        CHECK(all.entries[1].value == "v");
        CHECK(keys_of(client.range("a/", "", kMany, Values::with)) == Keys{"a/1", "a/2", "a/2x", "a/3"});
        const Found page = client.range("a/", "", 2, Values::without);
        CHECK(keys_of(page) == Keys{"a/1", "a/2"});
        CHECK(page.more);
        CHECK(page.entries[0].value.empty());
        CHECK(page.entries[0].changed > 0);
        const Found rest = client.range("a/", "a/2", 2, Values::without);
        CHECK(keys_of(rest) == Keys{"a/2x", "a/3"});
        CHECK_FALSE(rest.more);
        CHECK(keys_of(client.range("a/", "a/3", 2, Values::with)).empty());
        CHECK(keys_of(client.range("a/", "b", 2, Values::with)).empty());
        CHECK(keys_of(client.range("b", "a/2", 2, Values::with)) == Keys{"b"});
        CHECK(keys_of(client.range("c", "", 2, Values::with)).empty());
    }
}

TEST_CASE("leases") {
    if (!have_etcd())
        return;
    Etcd etcd;
    Client client(etcd.address(), {});
    const std::int64_t lease = client.grant_lease(1000), short_one = client.grant_lease(1);
    CHECK(lease != short_one);
    const std::vector<Change> changes{{.key = "a", .value = "1", .lease = lease},
                                      {.key = "b", .value = "2", .lease = short_one}};
    const Done done = client.change({}, changes);
    Follower follower(etcd.address(), done.revision + 1);
    CHECK(client.keep_lease(lease));
    REQUIRE(follower.has_events(1)); // it ended by itself
    CHECK_FALSE(client.get("b"));
    CHECK(client.get("a"));
    CHECK_FALSE(client.keep_lease(short_one));
    client.revoke_lease(lease);
    CHECK_FALSE(client.get("a"));
    CHECK_FALSE(client.keep_lease(lease));
    CHECK_NOTHROW(client.revoke_lease(lease));
    const Change late{.key = "c", .value = "3", .lease = lease};
    CHECK_THROWS_AS(client.change({}, {&late, 1}), Refused);
    REQUIRE(follower.has_events(2));
    for (const Batch& batch : follower.batches())
        for (const Event& event : batch.events)
            CHECK(event.deleted);
}

TEST_CASE("many threads share a client") {
    if (!have_etcd())
        return;
    Etcd etcd;
    Client client(etcd.address(), {});
    put(client, "n", "0");
    constexpr int kThreads = 6, kTimes = 20;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
        threads.emplace_back([&] {
            for (int done = 0; done < kTimes;) {
                const auto now = client.get("n");
                const Condition same{.of = Condition::Of::changed, .key = "n", .revision = now->changed};
                const Change more{.key = "n", .value = std::to_string(std::atoi(now->value.c_str()) + 1)};
                done += client.change({&same, 1}, {&more, 1}).applied ? 1 : 0;
            }
        });
    for (std::thread& thread : threads)
        thread.join();
    CHECK(client.get("n")->value == std::to_string(kThreads * kTimes));
}

TEST_CASE("an etcd that is away") {
    if (!have_etcd())
        return;
    Etcd etcd;
    Client client(etcd.address(), {}, short_limits());
    put(client, "a", "1");

    SECTION("it does not run: nothing is done") {
        etcd.stop();
        try {
            put(client, "a", "2");
            FAIL();
        } catch (const Away& away) {
            CHECK_FALSE(away.maybe_done);
            CHECK(away.code() == tinykvm::ExitCode::unreachable);
            CHECK(std::string(away.what()).find(etcd.endpoint()) != std::string::npos);
        }
        CHECK_THROWS_AS(client.get("a"), Away);
        CHECK_THROWS_AS(client.grant_lease(10), Away);
        etcd.start();
        CHECK(client.get("a")->value == "1");
        CHECK(put(client, "a", "2").applied);
    }
    SECTION("it does not answer: a change may be done") {
        etcd.pause();
        try {
            put(client, "a", "2");
            FAIL();
        } catch (const Away& away) {
            CHECK(away.maybe_done);
        }
        try {
            client.get("a");
            FAIL();
        } catch (const Away& away) {
            CHECK_FALSE(away.maybe_done);
        }
        etcd.resume();
        const std::string value = client.get("a")->value; // whether etcd saw first what was asked, or that we had left
        CHECK((value == "1" || value == "2"));
    }
    SECTION("another endpoint is tried") {
        Address two = etcd.address();
        two.endpoints.insert(two.endpoints.begin(), "http://127.0.0.1:" + std::to_string(free_port()));
        Client with_two(two, {}, short_limits());
        CHECK(put(with_two, "a", "3").applied);
        CHECK(with_two.get("a")->value == "3");
        etcd.stop();
        CHECK_THROWS_AS(with_two.get("a"), Away);
    }
    SECTION("it has no leader: nothing is done") {
        Follower follower(etcd.address(), 1, {}, Limits()); // which does not ask: etcd ends its watch
        REQUIRE(follower.has_events(1));
        // With a second member that does not run there is no majority.
        post(etcd, "/v3/cluster/member/add", R"({"peerURLs":["http://127.0.0.1:1"]})");
        CHECK(comes_true([&] {
            try {
                put(client, "b", "1");
            } catch (const Away& away) {
                return !away.maybe_done && std::string(away.what()).find("no leader") != std::string::npos;
            }
            return false;
        }));
        CHECK_THROWS_AS(client.get("a"), Away);
        CHECK(follower.end() == Watch::End::broken);
        CAPTURE(follower.why());
        CHECK(follower.why().find("no leader") != std::string::npos);
    }
}

TEST_CASE("etcd by TLS") {
    if (!have_etcd())
        return;
    Etcd etcd;
    const std::string certificate = etcd.folder() + "/cert.pem", key = etcd.folder() + "/key.pem";
    const std::string make =
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=etcd "
        "-addext subjectAltName=IP:127.0.0.1 -keyout " +
        key + " -out " + certificate + " 2>/dev/null";
    REQUIRE(std::system(make.c_str()) == 0);
    etcd.stop();
    etcd.serve_tls(certificate, key);
    etcd.start();
    Client client(etcd.address(), {});
    const Done done = put(client, "a", "1");
    CHECK(client.get("a")->value == "1");
    Follower follower(etcd.address(), done.revision);
    CHECK(follower.has_events(1));
    Address stranger = etcd.address();
    stranger.ca_file.clear();
    try {
        Client(stranger, {}).get("a");
        FAIL();
    } catch (const Away& away) {
        CHECK(std::string(away.what()).find("certificate") != std::string::npos);
    }
}
