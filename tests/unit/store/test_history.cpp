// The history of functions: who changed what, when and why.
#include <fmt/format.h>
#include <sqlite3.h>

#include <functional>

#include "src/common/clock.hpp"
#include "src/store/functions/deploy_change.hpp"
#include "src/store/functions/event.hpp"
#include "src/store/snapshots/gc.hpp"
#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"

using namespace kvmserver;
using namespace kvmserver::store;
using namespace kvmserver::store::test;

namespace {

const Author kAlice{.token = false, .name = "alice", .tenant = ""};
const Author kToken{.token = true, .name = "ci", .tenant = "hello"};

// "alice deploy v1 (first version) why", newest first.
std::vector<std::string> told(Store& store, const std::string& name = "hello") {
    std::vector<std::string> lines;
    for (const Event& event : Functions(store).history(name))
        lines.push_back(fmt::format("{}{} {} {} ({}) {}", event.author.token ? "token " : "", event.author.name,
                                    event.action, event.subject, event.change, event.message));
    return lines;
}

DeployResult deploy_as(Store& store, const Author& author, unsigned seed, const std::string& message = "",
                       const std::function<void(DeployRequest&)>& more = {}) {
    const SnapshotHold hold = import(store, sample_pieces(seed));
    DeployRequest request;
    request.function = "hello";
    request.snapshot = hold.digest();
    request.message = message;
    if (more)
        more(request);
    return Functions(store, author).deploy(request);
}

std::string change(const std::string& before, const std::string& after) {
    return deploy_change({before, {}, {}}, {after, {}, {}});
}

} // namespace

TEST_CASE("each change of a function is told with its author and message, the newest first") {
    const TempFolder folder;
    Store store(folder / "store");
    const std::int64_t began = now_ms();
    deploy_as(store, kAlice, 1);
    deploy_as(store, kToken, 2, "faster checkout");
    Functions functions(store, kAlice);
    functions.set_traffic("hello", {{1, 40}, {2, 60}}, {}, "a canary");
    functions.rollback("hello", 1, {}, "checkout fails — badly");
    functions.set_env("hello", "COLOUR", "a secret colour");
    functions.set_env("hello", "COLOUR", std::nullopt);
    Secrets(store, kToken).set("hello", "KEY", "1234");
    Secrets(store, kToken).set("hello", "KEY", std::nullopt);
    functions.remove_version("hello", 2);
    Secrets(store, kAlice).set("", "SHARED", "1234"); // of no function
    CHECK(told(store) == std::vector<std::string>{
                             "alice delete-version v2 () ",
                             "token ci unset-secret KEY () ",
                             "token ci set-secret KEY () ",
                             "alice unset-env COLOUR () ",
                             "alice set-env COLOUR () ",
                             "alice rollback v1:40%,v2:60% -> v1 () checkout fails — badly",
                             "alice traffic v2 -> v1:40%,v2:60% () a canary",
                             "token ci deploy v2 (snapshot) faster checkout",
                             "alice deploy v1 (first version) ",
                         });
    const auto events = functions.history("hello");
    CHECK(events.at(7).author.tenant == "hello");
    for (const Event& event : events)
        CHECK((event.time >= began && event.time <= now_ms()));
    CHECK_THROWS_AS(functions.history("nobody"), NotFound);
    CHECK(lines_of(verify(folder / "store")).empty());
}

TEST_CASE("what is refused is not told, and a bad message refuses the change") {
    const TempFolder folder;
    Store store(folder / "store");
    deploy_as(store, kAlice, 1);
    deploy_as(store, kAlice, 2);
    const auto before = told(store);
    const std::string picture_before = picture(store, "hello");
    Functions functions(store, kAlice);
    CHECK_THROWS_AS(functions.rollback("hello", 1, "stale"), StaleEtag);
    CHECK_THROWS_AS(functions.rollback("hello", 9), NotFound);
    CHECK_THROWS_AS(functions.set_traffic("hello", {{1, 40}}), BadValue);
    CHECK_THROWS_AS(functions.remove_version("hello", 2), Conflict);
    for (const std::string& message :
         {std::string("two\nlines"), std::string("\x1b[2J"), std::string("\xc2\x9b"), std::string("bad \xff"),
          std::string("nul \0", 5), std::string(kMaxMessage + 1, 'x')}) {
        CHECK_THROWS_AS(functions.rollback("hello", 1, {}, message), BadValue);
        CHECK_THROWS_AS(functions.set_traffic("hello", {{1, 100}}, {}, message), BadValue);
        CHECK_THROWS_AS(deploy_as(store, kAlice, 3, message), BadValue);
    }
    CHECK(told(store) == before);
    CHECK(picture(store, "hello") == picture_before);
    CHECK(lines_of(verify(folder / "store")).empty());
    CHECK_NOTHROW(functions.rollback("hello", 1, {}, std::string(kMaxMessage, 'x')));
    CHECK(functions.history("hello").front().message.size() == kMaxMessage);
}

TEST_CASE("the newest events of each function are kept") {
    const TempFolder folder;
    Store store(folder / "store");
    deploy_as(store, kAlice, 1);
    deploy(store, "other", 1);
    Functions functions(store, kAlice);
    for (std::size_t i = 0; i < kMaxEvents + 5; ++i)
        functions.set_env("hello", fmt::format("N{}", i), "1");
    const auto events = functions.history("hello");
    REQUIRE(events.size() == kMaxEvents);
    CHECK(events.front().subject == fmt::format("N{}", kMaxEvents + 4));
    CHECK(events.back().subject == "N5");
    CHECK(functions.history("other").size() == 1);
}

TEST_CASE("a function that is deleted takes its history along") {
    const TempFolder folder;
    Store store(folder / "store");
    deploy_as(store, kAlice, 1, "secret plans");
    Functions(store).remove("hello");
    CHECK_THROWS_AS(Functions(store).history("hello"), NotFound);
    deploy_as(store, kToken, 1);
    CHECK(told(store) == std::vector<std::string>{"token ci deploy v1 (first version) "});
}

TEST_CASE("a deploy is told with its sizes, whatever other functions have") {
    const TempFolder folder;
    Store store(folder / "store");
    deploy(store, "other", 2);
    deploy_as(store, kAlice, 1);
    deploy_as(store, kAlice, 2); // has the first half of its pieces in common with the one before
    deploy_as(store, kAlice, 2);
    const auto events = Functions(store).history("hello");
    const auto size_of = [](unsigned seed) { return joined(sample_pieces(seed)).size(); };
    std::size_t common = 0;
    const auto first = sample_pieces(1), second = sample_pieces(2);
    for (std::size_t i = 0; i < first.size(); ++i)
        common += first[i] == second[i] ? first[i].size() : 0;
    REQUIRE(common > 0);
    CHECK(events.at(2).bytes == size_of(1));
    CHECK(events.at(2).new_bytes == size_of(1));
    CHECK(events.at(1).bytes == size_of(2));
    CHECK(events.at(1).new_bytes == size_of(2) - common);
    CHECK(events.at(0).new_bytes == 0);
    CHECK(events.at(0).change == "same snapshot");
}

TEST_CASE("a deploy tells what differs from the version that was live") {
    const TempFolder folder;
    Store store(folder / "store");
    const auto with = [](const std::string& manifest, bool activate = true) {
        return [=](DeployRequest& request) {
            request.manifest = manifest;
            request.activate = activate;
        };
    };
    deploy_as(store, kAlice, 1, "", with(R"({"run":{"program":"a"}})"));
    deploy_as(store, kAlice, 2, "", with(R"({"run":{"program":"b"}})"));
    Functions(store).rollback("hello", 1);
    deploy_as(store, kAlice, 3, "", with(R"({"run":{"program":"a"},"allow-net":true})", false));
    CHECK(Functions(store).history("hello").front().change == "not live, +allow-net, snapshot");
    deploy_as(store, kAlice, 1, "", [](DeployRequest& request) {
        request.manifest = R"({"run":{"program":"a"}})";
        request.routes = std::vector{Route::parse("/x/*")};
        request.env = std::map<std::string, std::string>{{"A", "hidden"}};
    });
    CHECK(Functions(store).history("hello").front().change == "routes, +env A, same snapshot");
}

TEST_CASE("how one manifest differs from another") {
    CHECK(change("{}", "{}").empty());
    CHECK(change(R"({"allow-read":["/a"],"max-request-time":8,"run":{"program":"./a","args":["1"]}})",
                 R"({"allow-net":true,"max-request-time":20,"run":{"program":"./b","args":["2"]}})") ==
          "+allow-net, -allow-read, args, max-request-time 8 -> 20, program ./a -> ./b");
    CHECK(change(R"({"function":{"name":"x","scale":{"max":4},"env":{"A":"1"},"routes":["/a"]}})",
                 R"({"function":{"name":"x","scale":{"max":8},"env":{"A":"2"},"routes":["/b"]}})") ==
          "scale.max 4 -> 8");
    CHECK(change(R"({"a":")" + std::string(40, 'x') + R"("})", R"({"a":"y"})") == "a");
    CHECK(change("{}", R"({"a\n\u001b[2J":1})") == R"(+a\x0a\x1b[2J)");
    const std::map<std::string, std::string> before{{"A", "1"}, {"B", "2"}}, after{{"B", "3"}, {"C", "4"}};
    CHECK(deploy_change({"{}", {}, before}, {"{}", {}, after}) == "+env C, -env A, env B");
    std::string many = "{";
    for (int i = 0; i < 1000; ++i)
        many += fmt::format(R"({}"key-{}":1)", i ? "," : "", i);
    const std::string line = change("{}", many + "}");
    CHECK(line.size() < 520);
    CHECK(line.ends_with(", ..."));
}

TEST_CASE("what the daemon compresses anew is no event") {
    const TempFolder folder;
    Store store(folder / "store");
    const DeployResult done =
        deploy_as(store, kAlice, 1, "", [](DeployRequest& request) { request.compress_later = true; });
    const Digest hurried = Functions(store).version("hello", 1).snapshot;
    const SnapshotHold hold = import(store, sample_pieces(2));
    REQUIRE(Functions(store).compressed("hello", done.version, hurried, hold.digest()));
    CHECK(told(store).size() == 1);
    CHECK(Functions(store).history("hello").front().bytes == joined(sample_pieces(2)).size());
}

TEST_CASE("a deploy has the sizes of its warmed-up snapshot, compared with earlier versions only") {
    const TempFolder folder;
    Store store(folder / "store");
    deploy_as(store, kAlice, 1);
    deploy_as(store, kAlice, 3, "", [](DeployRequest& request) { request.warms_up = true; });
    deploy_as(store, kAlice, 4); // before the warm-up is over
    const auto before = Functions(store).history("hello");
    auto warmed = sample_pieces(2);
    warmed.pop_back(); // another size, and others of its pieces are new
    const SnapshotHold hold = import(store, warmed);
    Functions(store).warmed("hello", 2, hold.digest(), false);
    const auto events = Functions(store).history("hello");
    REQUIRE(events.size() == 3);
    const auto first = sample_pieces(1);
    std::size_t fresh = 0;
    for (std::size_t i = 0; i < warmed.size(); ++i)
        fresh += first[i] == warmed[i] ? 0 : warmed[i].size();
    REQUIRE(before.at(1).bytes != joined(warmed).size());
    CHECK(events.at(1).bytes == joined(warmed).size());
    CHECK(events.at(1).new_bytes == fresh);
    CHECK(events.at(1).author == kAlice);
    CHECK(events.at(0) == before.at(0));
    CHECK(events.at(2) == before.at(2));
}

TEST_CASE("versions that gc removes are an event of their function") {
    const TempFolder folder;
    Store store(folder / "store");
    for (unsigned seed = 1; seed <= 3; ++seed)
        deploy_as(store, kAlice, seed);
    deploy(store, "other", 1);
    GcOptions options{.keep_versions = 1, .dry_run = true, .author = kToken};
    gc(store, options);
    CHECK(told(store).size() == 3);
    options.dry_run = false;
    gc(store, options);
    gc(store, options); // nothing is left to remove
    CHECK(told(store).size() == 4);
    CHECK(told(store).front() == "token ci gc v1, v2 () ");
    CHECK(Functions(store).history("other").size() == 1);
    for (unsigned i = 0; i < 30; ++i)
        deploy_as(store, kAlice, 1);
    gc(store, options);
    const std::string subject = Functions(store).history("hello").front().subject;
    CHECK(subject.starts_with("v3, v4, "));
    CHECK(subject.ends_with(" and 10 more"));
}

TEST_CASE("a store of schema 4, and an index that is made anew, begin a history") {
    const TempFolder folder;
    const fs::path path = folder / "store";
    std::string before;
    {
        Store store(path);
        deploy_as(store, kAlice, 1);
        before = picture(store, "hello");
    }
    sqlite3* db = nullptr;
    REQUIRE(sqlite3_open((path / "index.db").c_str(), &db) == SQLITE_OK);
    const char* const back =
        "DROP TABLE drained; DROP TABLE shared; DROP TABLE certificate; DROP TABLE change; DROP INDEX "
        "version_to_compress; DROP TABLE event; ALTER TABLE version "
        "DROP COLUMN warms_until; ALTER TABLE function DROP COLUMN moved; "
        "ALTER TABLE chunk DROP COLUMN in_bucket; ALTER TABLE snapshot DROP COLUMN in_bucket_at; "
        "PRAGMA user_version = 4";
    CHECK(sqlite3_exec(db, back, nullptr, nullptr, nullptr) == SQLITE_OK);
    sqlite3_close(db);
    {
        Store store(path);
        REQUIRE(store.notes().size() == 1);
        CHECK(store.notes()[0].line.find("migrated from schema 4 to 11") != std::string::npos);
        CHECK(picture(store, "hello") == before);
        CHECK(told(store).empty());
        deploy_as(store, kToken, 2);
        CHECK(told(store) == std::vector<std::string>{"token ci deploy v2 (snapshot) "});
    }
    CHECK(lines_of(verify(path)).empty());
    fs::remove(path / "index.db");
    Store store(path);
    CHECK(told(store).empty());
    Functions(store, kAlice).rollback("hello", 1);
    CHECK(told(store) == std::vector<std::string>{"alice rollback v2 -> v1 () "});
}
