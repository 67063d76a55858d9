// Functions, routes, values, secrets, tokens.
#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"

#include "src/common/clock.hpp"
#include "src/store/functions/changes.hpp"
#include "src/store/functions/names.hpp"
#include "src/store/functions/secrets.hpp"
#include "src/store/functions/tokens.hpp"

using namespace kvmserver;
using namespace kvmserver::store;
using namespace kvmserver::store::test;

namespace {

std::string live_of(const std::vector<Live>& live) {
    std::string text;
    for (const Live& part : live)
        text += "v" + std::to_string(part.version) + "=" + std::to_string(part.percent) + " ";
    return text;
}

} // namespace

TEST_CASE("deploy, switch, roll back, delete") {
    const TempFolder folder;
    Store store(folder / "store");
    Functions functions(store);
    CHECK(deploy(store, "hello", 1).version == 1);
    const DeployResult second = deploy(store, "hello", 2);
    CHECK(live_of(second.before) == "v1=100 ");
    CHECK(live_of(second.live) == "v2=100 ");
    CHECK(live_of(functions.set_traffic("hello", {{2, 10}, {1, 90}}).live) == "v1=90 v2=10 ");
    CHECK_THROWS_AS(functions.set_traffic("hello", {{1, 50}, {2, 49}}), BadValue);
    CHECK_THROWS_AS(functions.set_traffic("hello", {{1, 50}, {1, 50}}), BadValue);
    CHECK_THROWS_AS(functions.set_traffic("hello", {{3, 100}}), NotFound);
    CHECK_THROWS_AS(functions.rollback("hello"), NotFound); // v1 has most requests, and there is none before
    functions.set_traffic("hello", {{2, 100}});
    CHECK(live_of(functions.rollback("hello").live) == "v1=100 ");
    functions.set_traffic("hello", {{2, 50}, {1, 50}});
    CHECK(live_of(functions.rollback("hello").live) == "v1=100 "); // before v2, the newest of those with most requests
    CHECK_THROWS_AS(functions.remove_version("hello", 1), Conflict);
    functions.remove_version("hello", 2);
    CHECK(functions.versions("hello").size() == 1);
    CHECK(deploy(store, "hello", 3).version == 3); // a number is never used again
    functions.remove("hello");
    CHECK(functions.list().empty());
    CHECK_THROWS_AS(functions.describe("hello"), NotFound);
    CHECK_THROWS_AS(functions.remove("hello"), NotFound);
}

TEST_CASE("a version that is not ready does not go live") {
    const TempFolder folder;
    Store store(folder / "store");
    Functions functions(store);
    deploy(store, "hello", 1);
    const SnapshotHold hold = import(store, sample_pieces(2));
    DeployRequest request;
    request.function = "hello";
    request.snapshot = hold.digest();
    request.state = VersionState::pending;
    CHECK_THROWS_AS(functions.deploy(request), Conflict);
    request.activate = false;
    CHECK(functions.deploy(request).version == 2); // the refused one left nothing, not even its number
    CHECK_THROWS_AS(functions.rollback("hello", 2), Conflict);
    functions.set_state("hello", 2, VersionState::ready);
    functions.rollback("hello", 2);
    CHECK_THROWS_AS(functions.set_state("hello", 2, VersionState::failed), Conflict);
    CHECK(functions.version("hello", 2).percent == 100);
    request.snapshot = sha256("nothing");
    CHECK_THROWS_AS(functions.deploy(request), NotFound);
    CHECK_THROWS_AS(functions.version("hello", 3), NotFound);
}

TEST_CASE("an etag is good for one state of one function") {
    const TempFolder folder;
    Store store(folder / "store");
    Functions functions(store);
    const std::string first = deploy(store, "hello", 1).etag;
    const std::string second = functions.set_env("hello", "A", "1", first);
    CHECK(first != second);
    try {
        functions.set_env("hello", "A", "2", first);
        FAIL("an old etag was good");
    } catch (const StaleEtag& e) {
        CHECK(e.current() == second);
    }
    CHECK_THROWS_AS(functions.remove("hello", ""), StaleEtag); // "it must not exist"
    functions.remove("hello", second);
    CHECK(deploy(store, "hello", 1).etag != first);
    DeployRequest request;
    request.function = "new";
    request.snapshot = functions.versions("hello")[0].snapshot;
    request.if_match = "";
    functions.deploy(request);
    CHECK_THROWS_AS(functions.deploy(request), StaleEtag);
}

TEST_CASE("a route has one owner") {
    const TempFolder folder;
    Store store(folder / "store");
    Functions functions(store);
    deploy(store, "one", 1, {"Hello.example.com", "/hello/*"});
    try {
        deploy(store, "two", 2, {"other.example.com", "/hello/*"});
        FAIL("a route was taken twice");
    } catch (const RouteTaken& e) {
        CHECK(e.owner() == "one");
        CHECK(std::string(e.what()).find("/hello/*") != std::string::npos);
    }
    CHECK(functions.list().size() == 1); // nothing of it
    deploy(store, "two", 2, {"/hello"});
    functions.set_routes("one", {Route::parse("hello.example.com")});
    deploy(store, "two", 2, {"/hello/*"});
    const auto routes = functions.routes();
    REQUIRE(routes.size() == 2);
    CHECK(routes[0].route.text() == "/hello/*");
    CHECK(routes[0].function == "two");
    CHECK(routes[1].route.text() == "hello.example.com");
}

TEST_CASE("what names and values may be") {
    for (const char* good : {"a", "hello", "a-1", "0a"})
        CHECK_NOTHROW(check_function_name(good));
    for (const std::string bad : {"", "-a", "a-", "A", "a.b", "a/b", "..", "a\nb", "\xff"})
        CHECK_THROWS_AS(check_function_name(bad), BadValue);
    CHECK_THROWS_AS(check_function_name(std::string(64, 'a')), BadValue);
    for (const char* text : {"h.example.com", "/a/*", "h.x/a/*", "*.x.org", "/*", "/a"})
        CHECK(Route::parse(text).text() == text);
    for (const char* bad : {"", "a b", "h_x.org", "h..x", "/a b", "h/../*x", "h.x:80", "/a?b", "*"})
        CHECK_THROWS_AS(Route::parse(bad), BadValue);
    for (const char* bad : {"", "1", "[]", "{", "{} {}", "\"a\"", "{\"a\":\xff}"})
        CHECK_THROWS_AS(check_manifest(bad), BadValue);
    CHECK_THROWS_AS(check_manifest("{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}"), BadValue);
    CHECK_THROWS_AS(check_variable_name("A=B"), BadValue);
    CHECK_THROWS_AS(check_variable_name("1A"), BadValue);
    CHECK_THROWS_AS(check_variable_value("A", std::string_view("a\0b", 3)), BadValue);
}

TEST_CASE("environment and secrets") {
    const TempFolder folder;
    Store store(folder / "store");
    Functions functions(store);
    Secrets secrets(store);
    deploy(store, "hello", 1);
    deploy(store, "other", 1);
    functions.set_env("hello", "A", "1");
    functions.set_env("hello", "A", "2");
    CHECK(functions.describe("hello").env.at("A") == "2");
    functions.set_env("hello", "A", std::nullopt);
    CHECK_THROWS_AS(functions.set_env("hello", "A", std::nullopt), NotFound);
    secrets.set("", "KEY", "for all");
    secrets.set("hello", "KEY", "its own");
    CHECK(secrets.values("hello", "").at("KEY") == "its own");
    CHECK(secrets.values("other", "").at("KEY") == "for all");
    CHECK(secrets.list("hello").size() == 1);
    CHECK(functions.describe("hello").secrets == std::vector<std::string>{"KEY"});
    secrets.set("hello", "KEY", std::nullopt);
    CHECK(secrets.values("hello", "").at("KEY") == "for all");
    CHECK_THROWS_AS(secrets.set("hello", "KEY", std::nullopt), NotFound);
    CHECK_THROWS_AS(secrets.set("nobody", "KEY", "x"), NotFound);
    functions.remove("hello"); // with what is its own
    CHECK(secrets.values("other", "").size() == 1);
}

TEST_CASE("tokens") {
    const TempFolder folder;
    Store store(folder / "store");
    Tokens tokens(store);
    const std::string token = tokens.create("ci", kScopeDeploy | kScopeInvoke, "web-");
    const auto info = tokens.check(token);
    REQUIRE(info);
    CHECK(info->allows(kScopeDeploy, "web-shop"));
    CHECK(info->allows(kScopeRead, "web-shop"));
    CHECK_FALSE(info->allows(kScopeAdmin, "web-shop"));
    CHECK_FALSE(info->allows(kScopeDeploy, "shop"));
    CHECK_FALSE(info->allows(kScopeRead, ""));
    CHECK(tokens.list()[0].last_used);
    CHECK_FALSE(tokens.check(token + "0"));
    CHECK_FALSE(tokens.check(""));
    CHECK_THROWS_AS(tokens.create("ci", kScopeRead), Conflict);
    CHECK_THROWS_AS(tokens.create("x", 0), BadValue);
    CHECK_THROWS_AS(scope_from("root"), BadValue);
    const std::string old = tokens.create("old", kScopeAdmin, "", now_ms() - 1);
    CHECK_FALSE(tokens.check(old));
    const std::string admin = tokens.create("admin", scope_from("admin"));
    CHECK(tokens.check(admin)->allows(kScopeDeploy, ""));
    tokens.revoke("ci");
    CHECK_FALSE(tokens.check(token));
    CHECK_THROWS_AS(tokens.revoke("ci"), NotFound);
    for (const fs::path& file : files_below(folder / "store")) // hashes only
        CHECK(read_text(file).find(admin.substr(4)) == std::string::npos);
}

TEST_CASE("a snapshot that was compressed in a hurry is replaced by the same, compressed anew") {
    const TempFolder folder;
    std::optional<Store> opened(folder / "store");
    Store& store = *opened;
    Functions functions(store);
    const auto deploy_hurried = [&](unsigned seed) {
        const SnapshotHold hold = import(store, sample_pieces(seed));
        DeployRequest request;
        request.function = "hello";
        request.snapshot = hold.digest();
        request.compress_later = true;
        functions.deploy(request);
        return hold.digest();
    };
    deploy(store, "hello", 1);
    CHECK(functions.to_compress().empty());
    const Digest old = deploy_hurried(2), live = deploy_hurried(3);
    const auto next = functions.to_compress();
    REQUIRE(next.size() == 2);
    CHECK(next[0].version == 3); // the live one first
    CHECK(next[0].snapshot == live);
    CHECK(next[1].snapshot == old);

    const std::string etag = functions.describe("hello").etag;
    Digest anew;
    {
        const SnapshotHold hold = import(store, sample_pieces(4));
        anew = hold.digest();
        CHECK_FALSE(functions.compressed("hello", 1, live, anew)); // v1 has another snapshot
        CHECK_FALSE(functions.compressed("hello", 9, live, anew));
        CHECK_FALSE(functions.compressed("nothing", 3, live, anew));
        CHECK_FALSE(remove_snapshot(store, anew)); // held
        CHECK(functions.compressed("hello", 3, live, anew));
    }
    CHECK(functions.version("hello", 3).snapshot == anew);
    CHECK_FALSE(functions.version("hello", 3).compress_later);
    CHECK(functions.to_compress().size() == 1);
    CHECK(functions.describe("hello").etag == etag);
    CHECK_NOTHROW(functions.set_env("hello", "A", "1", etag));

    CHECK_FALSE(remove_snapshot(store, anew)); // v3 is made of it
    CHECK(remove_snapshot(store, live));
    CHECK(remove_snapshot(store, live)); // gone already
    CHECK_THROWS_AS(StoredSnapshot(store, live), NotFound);
    CHECK(exported(store, anew) == joined(sample_pieces(4))); // also the pieces that both have
    CHECK(lines_of(verify(folder / "store")).empty());
    opened.reset();
    fs::remove(folder / "store" / "index.db"); // made anew from the records
    Store again(folder / "store");
    CHECK(Functions(again).version("hello", 3).snapshot == anew);
}

TEST_CASE("a version that goes live before its warm-up gets its warmed-up snapshot later") {
    const TempFolder folder;
    std::optional<Store> opened(folder / "store");
    Store& store = *opened;
    Functions functions(store);
    Digest cold;
    {
        const SnapshotHold hold = import(store, sample_pieces(1));
        DeployRequest request;
        request.function = "hello";
        request.snapshot = cold = hold.digest();
        request.compress_later = request.warms_up = true;
        functions.deploy(request);
    }
    deploy(store, "hello", 2);
    const std::string etag = functions.describe("hello").etag;
    const auto waits = functions.to_compress();
    REQUIRE(waits.size() == 1);
    CHECK(waits[0].warms_until > now_ms()); // not to be compressed before
    CHECK(functions.version("hello", 1).warms_until == waits[0].warms_until);

    const SnapshotHold hold = import(store, sample_pieces(3));
    CHECK_THROWS_AS(functions.warmed("hello", 2, hold.digest(), true), Conflict); // v2 is as it is to be
    CHECK_THROWS_AS(functions.warmed("hello", 3, hold.digest(), true), NotFound);
    CHECK_THROWS_AS(functions.warmed("other", 1, hold.digest(), true), NotFound);
    CHECK(functions.warmed("hello", 1, hold.digest(), true) == cold);
    CHECK(functions.version("hello", 1).snapshot == hold.digest());
    CHECK(functions.version("hello", 1).warms_until == 0);
    CHECK(functions.to_compress().at(0).warms_until == 0);
    CHECK(functions.describe("hello").etag == etag);
    CHECK_THROWS_AS(functions.warmed("hello", 1, hold.digest(), true), Conflict);
    CHECK(remove_snapshot(store, cold));
    CHECK(lines_of(verify(folder / "store")).empty());
    opened.reset();
    fs::remove(folder / "store" / "index.db"); // made anew from the records
    Store again(folder / "store");
    CHECK(Functions(again).version("hello", 1).snapshot == hold.digest());
}

TEST_CASE("functions are listed in pages, by name, and those of a prefix alone") {
    const TempFolder folder;
    Store store(folder / "store");
    Functions functions(store);
    for (const char* const name : {"team", "team-b", "team-a", "teams", "a", "z"})
        deploy(store, name, 1, {std::string(name) + ".example", std::string(name) + ".example/more"});
    deploy(store, "team-a", 2);
    const auto names = [&](const Page& page) {
        std::string all;
        for (const FunctionSummary& function : functions.list(page))
            all += function.name + " ";
        return all;
    };
    CHECK(names({}) == "a team team-a team-b teams z ");
    CHECK(names({.limit = 2}) == "a team ");
    CHECK(names({.after = "team", .limit = 2}) == "team-a team-b ");
    CHECK(names({.after = "teal"}) == "team team-a team-b teams z ");
    CHECK(names({.after = "z"}).empty());
    CHECK(names({.prefix = "team-"}) == "team-a team-b ");
    CHECK(names({.prefix = "team"}) == "team team-a team-b ");
    CHECK(names({.after = "team-a", .prefix = "team", .limit = 1}) == "team-b ");
    const FunctionSummary one = functions.list({.after = "team", .limit = 1}).at(0);
    CHECK(one.versions == 2);
    CHECK(live_of(one.live) == "v2=100 ");
    CHECK(one.routes == functions.describe("team-a").routes);
    CHECK(one.etag == functions.describe("team-a").etag);
}

TEST_CASE("the store tells which functions changed, whoever changed them") {
    const TempFolder folder;
    Store store(folder / "store"), other(folder / "store");
    std::int64_t seen = 0;
    const auto told = [&] {
        const Changes changes = changes_since(*store.index(), seen);
        seen = changes.last;
        std::string all = changes.all ? "all " : "";
        for (const std::string& name : changes.functions)
            all += name + " ";
        return all;
    };
    CHECK(told().empty());
    deploy(store, "a", 1);
    deploy(other, "b", 1);
    CHECK(told() == "a b ");
    CHECK(told().empty());
    Functions functions(other);
    functions.set_env("a", "A", "1");
    CHECK(told() == "a ");
    Secrets(other).set("b", "KEY", "k");
    CHECK(told() == "b ");
    functions.set_traffic("a", {});
    CHECK(told() == "a ");
    functions.set_routes("b", {});
    CHECK(told() == "b ");
    CHECK_THROWS(functions.set_env("a", "not a name", "1")); // nothing came of it
    CHECK(told().empty());
    functions.remove("a");
    CHECK(told() == "a ");
    Tokens(other).create("t", kScopeRead); // serves nobody
    CHECK(told().empty());
    Secrets(other).set_for_all("KEY", "k", std::nullopt);
    CHECK(told().starts_with("all "));
    Secrets(other).set("", "KEY", std::nullopt);
    CHECK(told().starts_with("all "));
    seen += 5; // of another index
    CHECK(told().starts_with("all "));
}
