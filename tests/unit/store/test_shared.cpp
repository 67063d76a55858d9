// Stores that share their index.
#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/unit/store/shared_samples.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

#include "src/store/errors.hpp"
#include "src/store/files/record_json.hpp"
#include "src/store/functions/certificates.hpp"
#include "src/store/shared/collect.hpp"
#include "src/store/shared/copied.hpp"
#include "src/store/shared/copy.hpp"
#include "src/store/shared/documents.hpp"
#include "src/store/shared/drained.hpp"
#include "src/store/shared/membership.hpp"
#include "src/store/shared/share_all.hpp"
#include "src/store/shared/unknown_fields.hpp"
#include "src/store/shared/verify_shared.hpp"

using namespace kvmserver;
using namespace kvmserver::store;
using namespace kvmserver::store::test;

namespace {

VerifyOptions look_only() {
    VerifyOptions options;
    options.repair = false;
    return options;
}

void deploy_stored(Store& store, const std::string& name, const Digest& snapshot) {
    DeployRequest request;
    request.function = name;
    request.snapshot = snapshot;
    Functions(store).deploy(request);
}

struct Pair {
    TempFolder folder;
    std::shared_ptr<MemoryIndex> index = std::make_shared<MemoryIndex>();
    std::shared_ptr<MemoryBucket> bucket = std::make_shared<MemoryBucket>();
    Store one{folder / "one", options()}, other{folder / "other", options()};

    StoreOptions options(std::shared_ptr<FileLayer> files = real_files()) const {
        return {.files = std::move(files), .bucket = bucket, .shared = index};
    }
    void follow() {
        for (Store* const store : {&one, &other}) {
            const CopiedAll copied = copy_all(*store);
            REQUIRE(copied.failed.empty());
        }
    }
    void same(const std::string& name) {
        REQUIRE(picture(one, name) == picture(other, name));
        REQUIRE(history(one, name) == history(other, name));
    }
    static std::vector<Event> history(Store& store, const std::string& name) {
        try {
            return Functions(store).history(name);
        } catch (const NotFound&) {
            return {};
        }
    }
    void sound() {
        for (const char* const name : {"one", "other"}) {
            const auto report = verify(folder / name, look_only());
            CHECK(lines_of(report).empty());
        }
        for (const auto& [key, entry] : index->entries())
            CHECK(!unknown_field(entry)); // of a newer version, which there is not
    }
};

} // namespace

TEST_CASE("what one store has, the other gets") {
    Pair pair;
    deploy(pair.one, "hello", 1, {"hello.example.com"});
    Secrets(pair.one).set("hello", "KEY", "value");
    pair.follow();
    pair.same("hello");
    CHECK(picture(pair.other, "hello").find("secret KEY=value") != std::string::npos);
    CHECK(Functions(pair.one).describe("hello").etag == Functions(pair.other).describe("hello").etag);
    // Without waiting for it, the other one builds on what is there.
    deploy(pair.one, "hello", 2, {"hello.example.com"});
    CHECK(deploy(pair.other, "hello", 3, {"hello.example.com"}).version == 3);
    Functions(pair.one).set_env("hello", "COLOUR", "red");
    Functions(pair.other).rollback("hello", 1);
    Functions(pair.one).remove_version("hello", 2);
    pair.follow();
    pair.same("hello");
    CHECK(Functions(pair.one).versions("hello").size() == 2);
    pair.sound();
    Functions(pair.other).remove("hello");
    deploy(pair.other, "hello", 4);
    pair.follow();
    pair.same("hello");
    CHECK(Functions(pair.one).versions("hello").size() == 1);
    // A route that its function gave up, by a change and by its end.
    deploy(pair.one, "hello", 5, {"a.example.com", "b.example.com"});
    pair.follow();
    Functions(pair.one).set_routes("hello", {Route{"b.example.com", "/"}});
    deploy(pair.other, "second", 6, {"a.example.com"});
    Functions(pair.one).remove("hello");
    Functions(pair.other).set_routes("second", {Route{"a.example.com", "/"}, Route{"b.example.com", "/"}});
    CHECK_THROWS_AS(deploy(pair.one, "third", 7, {"b.example.com"}), Conflict);
    pair.follow();
    pair.same("second");
    Functions(pair.other).remove("second");
    pair.follow();
    CHECK(picture(pair.one, "hello").empty());
    CHECK(pair.index->entries().empty()); // its routes, too
    pair.sound();
}

TEST_CASE("of two changes at once one wins, and the other one has no effect") {
    Pair pair;
    deploy(pair.one, "hello", 1);
    deploy(pair.one, "route", 2, {"taken.example.com"});
    pair.follow();
    pair.index->before_change = [&] { Functions(pair.other).set_env("hello", "COLOUR", "red"); };
    const std::string before = picture(pair.one, "hello");
    CHECK_THROWS_AS(deploy(pair.one, "hello", 3), Conflict);
    CHECK(picture(pair.one, "hello") == before);
    pair.sound();
    deploy(pair.one, "hello", 3);
    // A new function of one name in both.
    pair.index->before_change = [&] { deploy(pair.other, "new", 4); };
    CHECK_THROWS_AS(deploy(pair.one, "new", 5), Conflict);
    CHECK(picture(pair.one, "new").empty());
    // A route that another function gets.
    pair.index->before_change = [&] { deploy(pair.other, "first", 4, {"same.example.com"}); };
    CHECK_THROWS_AS(deploy(pair.one, "second", 5, {"same.example.com"}), Conflict);
    // A deletion.
    pair.index->before_change = [&] { Functions(pair.other).remove("hello"); };
    CHECK_THROWS_AS(Functions(pair.one).set_env("hello", "COLOUR", "blue"), Conflict);
    pair.index->before_change = [&] { Secrets(pair.other).set("", "SHARED", "1"); };
    CHECK_THROWS_AS(Secrets(pair.one).set("", "SHARED", "2"), Conflict);
    pair.follow();
    for (const char* const name : {"hello", "new", "first", "second", "route"})
        pair.same(name);
    CHECK(picture(pair.one, "hello").empty());
    CHECK(Secrets(pair.one).values("new", "").at("SHARED") == "1");
    pair.sound();
}

TEST_CASE("without the index nothing changes, and all is there") {
    Pair pair;
    deploy(pair.one, "hello", 1);
    deploy(pair.one, "hello", 2);
    pair.follow();
    const std::string before = picture(pair.one, "hello");
    pair.index->away = true;
    CHECK_THROWS_AS(deploy(pair.one, "hello", 2), IndexAway);
    CHECK_THROWS_AS(deploy(pair.one, "new", 2), IndexAway);
    CHECK_THROWS_AS(Functions(pair.one).remove("hello"), IndexAway);
    CHECK_THROWS_AS(Tokens(pair.one).create("ci", kScopeRead), IndexAway);
    CHECK_THROWS_AS(gc(pair.one, {.keep_versions = 1}), IndexAway);
    CHECK(picture(pair.one, "hello") == before);
    CHECK(Tokens(pair.one).list().empty());
    pair.index->away = false;
    pair.sound();
}

TEST_CASE("an older state that comes late is not taken") {
    Pair pair;
    deploy(pair.one, "hello", 1);
    const SharedEntry first = *pair.index->get(shared_key("hello"));
    Functions(pair.one).set_env("hello", "COLOUR", "red");
    const SharedEntry second = *pair.index->get(shared_key("hello"));
    copy_entry(pair.other, second);
    copy_entry(pair.other, first);
    pair.same("hello");
    copy_deletion(pair.other, first.key, first.revision);
    pair.same("hello");
    Functions(pair.one).remove("hello");
    copy_entry(pair.one, second); // as a watch tells it that is behind
    CHECK(picture(pair.one, "hello").empty());
    pair.follow();
    CHECK(picture(pair.other, "hello").empty());
    CHECK(all_copied(*pair.one.index()).size() == 1); // nothing is remembered for ever
    copy_entry(pair.one, second);                     // as another thread has read it before the deletion
    CHECK(picture(pair.one, "hello").empty());
    pair.sound();
}

TEST_CASE("tokens, secrets of all and certificates") {
    Pair pair;
    const std::string token = Tokens(pair.one).create("ci", kScopeDeploy, "ci-");
    const std::string local = Tokens(pair.other).create("other", kScopeRead);
    Secrets(pair.one).set_for_all("SHARED", "value", std::vector<std::string>{"ci-*"});
    Certificates(pair.one).put("example.com", "chain", "key");
    pair.follow();
    REQUIRE(Tokens(pair.other).check(token));
    REQUIRE(Tokens(pair.one).check(local));
    const auto id = Tokens(pair.other).check(token)->id;
    CHECK(Certificates(pair.other).list().size() == 1);
    CHECK(Secrets(pair.other).list("").at(0).grants == std::vector<std::string>{"ci-*"});
    // What this store knows of its tokens stays.
    const auto revision = Certificates(pair.other).revision();
    Tokens(pair.one).create("third", kScopeRead);
    pair.follow();
    CHECK(Tokens(pair.other).check(token)->id == id);
    const auto tokens = Tokens(pair.other).list();
    CHECK(std::ranges::find(tokens, "ci", &TokenInfo::name)->last_used.has_value());
    CHECK(Certificates(pair.other).revision() == revision); // they are not read again
    Tokens(pair.other).revoke("ci");
    pair.follow();
    CHECK(!Tokens(pair.one).check(token));
    pair.sound();
}

TEST_CASE("what has died while it copied is copied again") {
    Pair pair;
    deploy(pair.one, "hello", 1, {"a.example.com"});
    deploy(pair.one, "hello", 2, {"b.example.com"});
    const std::string wanted = picture(pair.one, "hello");
    const auto places = kvmserver::test::some_places();
    for (const auto fault : {FaultyFiles::Fault::death, FaultyFiles::Fault::io_error})
        for (int nth = places.first;; nth += places.step) {
            const TempFolder folder;
            const auto files = std::make_shared<FaultyFiles>();
            {
                Store store(folder / "copy", pair.options(files));
                files->arm(fault, nth);
                try {
                    copy_all(store);
                } catch (const Died&) {
                } catch (const HostError&) {
                }
            }
            const bool struck = files->struck();
            Store store(folder / "copy", pair.options());
            const CopiedAll copied = copy_all(store);
            REQUIRE(copied.failed.empty());
            REQUIRE(picture(store, "hello") == wanted);
            remove_leftovers(store); // as the daemon does
            REQUIRE(lines_of(verify(folder / "copy", look_only())) == "");
            if (!struck) {
                CHECK(nth > 5);
                break;
            }
        }
}

TEST_CASE("a lost index is made anew, and what was deleted meanwhile is gone") {
    Pair pair;
    deploy(pair.one, "stays", 1);
    deploy(pair.one, "goes", 2);
    {
        Store third(pair.folder / "third", pair.options());
        copy_all(third);
    }
    Functions(pair.one).remove("goes");
    Functions(pair.one).set_env("stays", "COLOUR", "red");
    for (const char* const lost : {"index.db", "index.db-wal", "index.db-shm"})
        fs::remove(pair.folder / "third" / lost);
    Store third(pair.folder / "third", pair.options());
    CHECK(copy_all(third).failed.empty());
    CHECK(picture(third, "goes").empty());
    CHECK(picture(third, "stays") == picture(pair.one, "stays"));
}

TEST_CASE("a store brings what it has, once") {
    Pair pair;
    {
        Store alone(pair.folder / "alone");
        deploy(alone, "hello", 1, {"hello.example.com"});
        deploy(alone, "both", 2);
        Tokens(alone).create("ci", kScopeRead);
    }
    deploy(pair.one, "both", 3);
    Store joining(pair.folder / "alone", pair.options());
    CHECK_THROWS_AS(share_all(joining), Conflict); // another "both"
    Functions(pair.one).remove("both");
    CHECK(share_all(joining) == 2);
    CHECK(share_all(joining) == 2); // as after a failure at the end
    pair.follow();
    CHECK(picture(pair.one, "hello") == picture(joining, "hello"));
    CHECK(Tokens(pair.one).list().size() == 1);
}

TEST_CASE("a store does not join where its function's entry makes no sense: the entry is named") {
    Pair pair;
    {
        Store alone(pair.folder / "alone");
        deploy(alone, "hello", 1);
        Tokens(alone).create("ci", kScopeRead);
    }
    Store joining(pair.folder / "alone", pair.options());
    for (const std::string key : {"functions/hello", "settings"}) {
        const SharedChange garbage{key, "{"};
        REQUIRE(pair.index->change({}, {&garbage, 1}));
        CHECK_THROWS_WITH(share_all(joining), Catch::Contains(key + ": ") && Catch::Contains("deploy it again"));
        const SharedChange gone{key, std::nullopt};
        REQUIRE(pair.index->change({}, {&gone, 1}));
    }
}

TEST_CASE("an index that went back to an older state removes nothing, and the newest state stays") {
    Pair pair;
    deploy(pair.one, "hello", 1, {"a.example.com"});
    pair.follow();
    const auto backup = pair.index->backup();
    deploy(pair.one, "hello", 2, {"b.example.com"});
    deploy(pair.one, "new", 3);
    pair.follow();
    const std::string hello = picture(pair.one, "hello"), added = picture(pair.one, "new");
    pair.index->restore(backup);
    CHECK_THROWS_AS(copy_all(pair.one), UserError);
    CHECK_THROWS_AS(copy_all(pair.other), UserError);
    CHECK_THROWS_AS(Functions(pair.one).set_env("hello", "COLOUR", "red"), Conflict);
    CHECK(picture(pair.one, "new") == added);
    share_all(pair.one);
    share_all(pair.other);
    pair.follow();
    for (Store* const store : {&pair.one, &pair.other}) {
        CHECK(picture(*store, "hello") == hello);
        CHECK(picture(*store, "new") == added);
    }
    pair.sound();
}

TEST_CASE("gc of the bucket removes what no function has, and nothing else") {
    Pair pair;
    deploy(pair.one, "hello", 1);
    deploy(pair.other, "other", 2);
    const SnapshotHold unused = import(pair.one, sample_pieces(3));
    const auto before = pair.bucket->size();
    const auto would = collect_shared_bucket(pair.other, true);
    CHECK(would > 1); // chunks and their list
    CHECK(pair.bucket->size() == before);
    CHECK(collect_shared_bucket(pair.other, false) == would);
    CHECK(pair.bucket->size() + would - 1 == before);
    CHECK(collect_shared_bucket(pair.one, false) == 0);
    pair.follow();
    pair.same("hello");
    pair.same("other");
    // What was imported before is complete again once a function has it.
    deploy_stored(pair.one, "late", unused.digest());
    pair.follow();
    pair.same("late");
    CHECK(collect_shared_bucket(pair.other, false) == 0);
    pair.sound();
}

TEST_CASE("a deploy while gc of another daemon removes has all its chunks in the end") {
    Pair pair;
    deploy(pair.one, "hello", 1);
    const SnapshotHold staged = import(pair.one, sample_pieces(2));
    std::thread deploying;
    std::atomic<bool> deployed = false;
    pair.bucket->after_remove = [&] { // some of its chunks are gone, and gc goes on
        deploying = std::thread([&] {
            deploy_stored(pair.one, "staged", staged.digest());
            deployed = true;
        });
        while (!deployed && pair.index->refused == 0 && pair.index->waited == 0)
            std::this_thread::yield();
    };
    collect_shared_bucket(pair.other, false);
    REQUIRE(deploying.joinable());
    deploying.join();
    pair.follow();
    pair.same("staged");
    CHECK(verify_shared(pair.other, false).clean());
    CHECK(collect_shared_bucket(pair.other, false) == 0);
    pair.same("staged");
    pair.sound();
}

TEST_CASE("deploys wait while a bucket that was not reached may still remove an object") {
    Pair pair;
    deploy(pair.one, "hello", 1);
    const SnapshotHold staged = import(pair.one, sample_pieces(2));
    pair.bucket->after_remove = [] { throw ChunksAway("no answer in time"); };
    CHECK_THROWS_AS(collect_shared_bucket(pair.other, false), ChunksAway);
    REQUIRE(pair.index->entries().contains(kGcRunning));
    std::atomic<bool> ended = false, too_early = false;
    std::thread deploying([&] {
        deploy_stored(pair.one, "staged", staged.digest());
        too_early = !ended;
    });
    while (pair.index->waited == 0)
        std::this_thread::yield();
    ended = true;
    pair.index->end_lock(kGcRunning); // its time is over
    deploying.join();
    CHECK(!too_early);
    pair.follow();
    pair.same("staged");
    CHECK(verify_shared(pair.other, false).clean());
    pair.sound();
}

TEST_CASE("a field of a newer version is served and not lost") {
    Pair pair;
    deploy(pair.one, "hello", 1, {"hello.example.com"});
    deploy(pair.one, "other", 2);
    const std::string key = shared_key("hello");
    Json entry = parse_record(pair.index->get(key)->value);
    entry["events"][0]["colour"] = "red";
    const SharedChange newer[] = {{key, entry.dump()}};
    REQUIRE(pair.index->change({}, newer));
    CHECK(unknown_field(*pair.index->get(key)) == "events[0].colour");
    pair.follow();
    pair.same("hello");
    CHECK_THROWS_AS(deploy(pair.one, "hello", 3), Conflict);
    CHECK_THROWS_AS(Functions(pair.other).remove("hello"), Conflict);
    CHECK(pair.index->get(key)->value == entry.dump());
    deploy(pair.other, "other", 3);
    entry["events"][0]["colour"] = ""; // nothing is lost
    const SharedChange empty[] = {{key, entry.dump()}};
    REQUIRE(pair.index->change({}, empty));
    deploy(pair.one, "hello", 3);
    CHECK(pair.index->get(key)->value.find("colour") == std::string::npos);
    pair.follow();
    pair.sound();
}

TEST_CASE("who does not know the index changes nothing in its stores") {
    Pair pair;
    deploy(pair.one, "hello", 1);
    set_membership(pair.one.folder(), {"id", "etcd", "node"});
    CHECK(membership_of(pair.one.folder())->id == "id");
    Store alone(pair.folder / "one");
    CHECK_THROWS_AS(Functions(alone).remove("hello"), Conflict);
    CHECK_THROWS_AS(Tokens(alone).create("ci", kScopeRead), Conflict);
    CHECK_THROWS_AS(gc(alone), Conflict);
    CHECK(!picture(pair.one, "hello").empty());
}

TEST_CASE("each store knows which nodes are drained") {
    Pair pair;
    const std::string key = "drained/node1";
    const auto drained = [&] { return is_drained(*pair.one.index(), "node1"); };
    const SharedChange mark{key, "{}"}, unmark{key, std::nullopt};
    const std::int64_t first = *pair.index->change({}, {&mark, 1});
    pair.follow();
    CHECK(drained());
    CHECK(!is_drained(*pair.one.index(), "node2"));
    // Twice, as a watch after copy_all() may tell it.
    copy_entry(pair.one, {key, "{}", first});
    copy_deletion(pair.one, key, first - 1); // of before
    CHECK(drained());
    const std::int64_t second = *pair.index->change({}, {&unmark, 1});
    pair.follow();
    CHECK(!drained());
    copy_entry(pair.one, {key, "{}", first}); // it comes late
    CHECK(!drained());
    copy_entry(pair.one, {key, "{}", second + 1});
    CHECK(drained());
    copy_deletion(pair.one, key, second + 2);
    CHECK(!drained());
    // A store that begins anew with the cluster takes nothing from before.
    copy_entry(pair.one, {key, "{}", second + 3});
    share_all(pair.one);
    CHECK(!drained());
}

TEST_CASE("verify of the cluster finds what does not agree, and sends again what the bucket lacks") {
    Pair pair;
    deploy(pair.one, "hello", 1, {"hello.example"});
    deploy(pair.other, "other", 2);
    pair.follow();
    const auto lines = [](const VerifyReport& report) {
        std::string all;
        for (const Finding& finding : report.findings)
            all += finding.line + "\n";
        return all;
    };
    VerifyReport clean = verify_shared(pair.one, false);
    CHECK(lines(clean) == "");
    CHECK((clean.clean() && clean.functions == 2 && clean.versions == 2 && clean.snapshots == 2 && clean.chunks > 2));
    // One chunk, and both lists.
    std::optional<Digest> lost;
    pair.bucket->list([&](const Digest& chunk) { lost = chunk; });
    pair.bucket->remove(*lost);
    pair.bucket->records.clear();
    const auto left = pair.bucket->size();
    CHECK(!verify_shared(pair.one, false).clean());
    CHECK(pair.bucket->size() == left);
    // Each store has the chunks of what was deployed there.
    CHECK_THAT(lines(verify_shared(pair.one, true)), Catch::Contains("sent again from this store"));
    CHECK_THAT(lines(verify_shared(pair.other, true)), Catch::Contains("sent again from this store"));
    clean = verify_shared(pair.one, false);
    CHECK(lines(clean) == "");
    CHECK(clean.snapshots == 2);
    // A route of a function that does not have it, and one that nobody has claimed.
    const SharedChange stray{"routes/stray.example", "hello"};
    REQUIRE(pair.index->change({}, {&stray, 1}));
    CHECK_THAT(lines(verify_shared(pair.one, true)), Catch::Contains("hello does not have this route"));
    const SharedChange away[] = {{"routes/stray.example", std::nullopt},
                                 {shared_key(Route::parse("hello.example")), std::nullopt}};
    REQUIRE(pair.index->change({}, away));
    CHECK_THAT(lines(verify_shared(pair.one, true)), Catch::Contains("its route hello.example is not claimed"));
    // What makes no sense.
    const SharedChange garbage{"functions/garbage", "{"};
    REQUIRE(pair.index->change({}, {&garbage, 1}));
    const VerifyReport broken = verify_shared(pair.one, true);
    CHECK(!broken.clean());
    CHECK_THAT(lines(broken), Catch::Contains("functions/garbage"));
}
