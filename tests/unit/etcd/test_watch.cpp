// Watches of a real etcd.
#include "src/etcd/watch.hpp"

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/etcd/etcd_process.hpp"

using namespace kvmserver::etcd;
using namespace kvmserver::etcd::test;

namespace {

Done put_value(Client& client, const std::string& key, const std::string& value) {
    const Change change{.key = key, .value = value};
    return client.change({}, {&change, 1});
}

std::size_t count_of(const std::vector<Batch>& batches) {
    std::size_t all = 0;
    for (const Batch& batch : batches)
        all += batch.events.size();
    return all;
}

} // namespace

TEST_CASE("a watch tells what was changed, and what is being changed") {
    if (!have_etcd())
        return;
    Etcd etcd;
    Client client(etcd.address(), {}), other(etcd.address("testing/"), {});
    const Done first = put_value(client, "a", "1");
    put_value(client, "a", "2");

    SECTION("from a revision on, in order, below the prefix alone") {
        Follower all(etcd.address(), first.revision), later(etcd.address(), first.revision + 1);
        REQUIRE(all.has_events(2));
        REQUIRE(later.has_events(1));
        put_value(other, "x", "1");
        const std::vector<Change> both{{.key = "b", .value = "3"}, {.key = "c", .value = "4"}};
        const Done together = client.change({}, both);
        const Change gone{.key = "a", .value = {}};
        const Done last = client.change({}, {&gone, 1});
        REQUIRE(all.has_events(5));
        REQUIRE(later.has_events(4));
        std::int64_t revision = first.revision - 1;
        bool saw_both = false;
        for (const Batch& batch : all.batches()) {
            CHECK(batch.revision > revision);
            std::size_t of_both = 0;
            for (const Event& event : batch.events) {
                CHECK(event.entry.changed > revision);
                CHECK(event.entry.changed <= batch.revision);
                of_both += event.entry.changed == together.revision ? 1 : 0;
            }
            CHECK((of_both == 0 || of_both == 2));
            saw_both |= of_both == 2;
            revision = batch.revision;
        }
        CHECK(saw_both);
        CHECK(revision == last.revision);
        const Event end = all.batches().back().events.back();
        CHECK(end.deleted);
        CHECK(end.entry.key == "a");
        CHECK(end.entry.changed == last.revision);
        all.stop();
        CHECK(all.end() == Watch::End::stopped);
    }
    SECTION("more than one message may have") {
        // Long replies of etcd come in fragments.
        constexpr int kBig = 8;
        for (int i = 0; i < kBig; ++i)
            put_value(client, "big" + std::to_string(i), std::string(1'000'000, static_cast<char>('a' + i)));
        Follower follower(etcd.address(), first.revision, {}, Limits());
        REQUIRE(follower.has_events(2 + kBig));
        int i = 0;
        for (const Batch& batch : follower.batches())
            for (const Event& event : batch.events)
                if (event.entry.key.starts_with("big"))
                    CHECK(event.entry.value == std::string(1'000'000, static_cast<char>('a' + i++)));
        CHECK(i == kBig);
    }
    SECTION("stop() ends it while it waits, before it begins, and in `take`") {
        Watch watch(client);
        CHECK(watch.follow(first.revision, [&](const Batch&) { watch.stop(); }) == Watch::End::stopped);
        CHECK(watch.follow(first.revision, [](const Batch&) { FAIL(); }) == Watch::End::stopped);
        Follower follower(etcd.address(), first.revision, {}, Limits());
        REQUIRE(follower.has_events(2)); // now it waits, and would wait 5 s
        const auto before = std::chrono::steady_clock::now();
        follower.stop();
        CHECK(follower.end() == Watch::End::stopped);
        CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(2));
    }
    SECTION("what `take` throws passes through, whatever it is") {
        Watch watch(client);
        CHECK_THROWS_AS(watch.follow(first.revision, [](const Batch&) { throw std::logic_error("x"); }),
                        std::logic_error);
        CHECK_THROWS_AS(watch.follow(first.revision, [](const Batch&) { throw Away("x", true); }), Away);
    }
    SECTION("history that was compacted") {
        const Done last = put_value(client, "a", "3");
        post(etcd, "/v3/kv/compaction", "{\"revision\":\"" + std::to_string(last.revision) + "\"}");
        Follower follower(etcd.address(), first.revision);
        CHECK(follower.end() == Watch::End::compacted);
        CHECK(follower.why().find("compacted") != std::string::npos);
        Follower good(etcd.address(), last.revision);
        CHECK(good.has_events(1));
    }
}

TEST_CASE("a watch of a quiet prefix goes on, and learns the revision") {
    if (!have_etcd())
        return;
    Etcd etcd({"--experimental-watch-progress-notify-interval", "100ms"});
    Client client(etcd.address(), {}), other(etcd.address("testing/"), {});
    const Done first = put_value(client, "a", "1");
    Follower follower(etcd.address(), first.revision);
    const Done last = put_value(other, "x", "1");
    CHECK(follower.comes(
        [&](const auto& batches) { return !batches.empty() && batches.back().revision >= last.revision; }));
    CHECK(count_of(follower.batches()) == 1);
    follower.stop();
    CHECK(follower.end() == Watch::End::stopped);
}

TEST_CASE("a watch that is silent for longer than etcd should be is broken") {
    if (!have_etcd())
        return;
    Etcd etcd; // which tells progress every 10 minutes
    Limits limits = short_limits();
    limits.watch_silence = std::chrono::milliseconds(700); // some checks come before
    Follower follower(etcd.address(), 1, {}, limits);
    CHECK(follower.end() == Watch::End::broken);
    CHECK(follower.why().find("silent") != std::string::npos);
}

TEST_CASE("a watch whose etcd goes away") {
    if (!have_etcd())
        return;
    Etcd etcd;
    Client client(etcd.address(), {}, short_limits());
    const Done first = put_value(client, "a", "1");

    SECTION("it ends, and another takes over where it was") {
        Follower follower(etcd.address(), first.revision, {}, Limits());
        REQUIRE(follower.has_events(1));
        etcd.stop();
        CHECK(follower.end() == Watch::End::broken);
        CHECK_FALSE(follower.why().empty());
        etcd.start();
        const Done second = put_value(client, "a", "2");
        Follower next(etcd.address(), follower.batches().back().revision + 1);
        REQUIRE(next.has_events(1));
        CHECK(next.batches().front().events.front().entry.changed == second.revision);
    }
    SECTION("it does not run: the next endpoint is followed the next time") {
        Address two = etcd.address();
        two.endpoints.insert(two.endpoints.begin(), "http://127.0.0.1:" + std::to_string(free_port()));
        Client with_two(two, {}, short_limits());
        Watch watch(with_two);
        CHECK(watch.follow(first.revision, [](const Batch&) {}) == Watch::End::broken);
        CHECK(watch.follow(first.revision, [&](const Batch&) { watch.stop(); }) == Watch::End::stopped);
    }
    SECTION("it hangs: the watch asks, and gets no answer") {
        Follower follower(etcd.address(), first.revision);
        REQUIRE(follower.has_events(1));
        etcd.pause();
        CHECK(follower.end() == Watch::End::broken);
        etcd.resume();
    }
    SECTION("its store is another one: what was read is void") {
        put_value(client, "a", "2");
        put_value(client, "a", "3");
        Etcd empty; // at revision 1
        Follower follower(empty.address(), first.revision + 2);
        CHECK(follower.end() == Watch::End::compacted);
    }
}
