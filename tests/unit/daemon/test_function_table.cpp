// What the store says is live, as the daemon routes by it: which version, with which settings, and what goes on when
// something changes.
#include "src/daemon/function_table.hpp"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/common/clock.hpp"
#include "src/store/errors.hpp"
#include "src/store/functions/secrets.hpp"
#include "src/store/functions/tokens.hpp"
#include "tests/catch.hpp"
#include "tests/unit/daemon/functions.hpp"

using namespace kvmserver;
using daemon::FunctionVersion;
using daemon::Share;

namespace {

constexpr std::uint64_t kIdle = 5'000'000'000;

class World {
public:
    std::uint64_t deploy(const std::string& name, const std::string& manifest = "{}") {
        store::DeployRequest request;
        request.function = name;
        request.snapshot = functions.hold.digest();
        request.manifest = manifest;
        request.routes = {store::Route::parse(name + ".example")};
        return store.deploy(request).version;
    }
    void refresh() { table.refresh(false); }
    std::vector<Share> shares(const std::string& host) {
        const auto found = table.routes().find(host, "/");
        return found ? found->shares : std::vector<Share>{};
    }
    // The only one that the host leads to.
    std::shared_ptr<FunctionVersion> live(const std::string& host) {
        const auto all = shares(host);
        REQUIRE(all.size() == 1);
        return all[0].version;
    }

    daemon::test::Functions functions{8};
    store::Store other{functions.folder / "store"}; // the daemon sees what others change
    store::Functions store{other};
    std::vector<std::string> notes;
    daemon::FunctionTable table{functions.store,
                                functions.pool,
                                functions.logs,
                                {.machines = 3, .idle_ns = kIdle, .rest_ns = 1'500'000},
                                [] { return std::make_shared<CeilingsFile>(); },
                                [this](const std::string& line) { notes.push_back(line); }};
};

} // namespace

TEST_CASE("a request is for the version that the store says is live, from the next look on") {
    World world;
    world.refresh();
    CHECK(world.shares("a.example").empty());
    CHECK(world.table.size() == 0);
    world.deploy("a");
    world.refresh();
    CHECK(world.table.size() == 1);
    CHECK(world.live("a.example")->facts().name() == "a v1");
    CHECK(world.live("a.example")->facts().snapshot == world.functions.hold.digest());
    world.deploy("a");
    CHECK(world.live("a.example")->facts().version == 1); // nobody has looked
    world.refresh();
    CHECK(world.live("a.example")->facts().version == 2);
    world.store.remove("a");
    world.refresh();
    CHECK(world.shares("a.example").empty());
}

TEST_CASE("traffic is shared between versions as the store says") {
    World world;
    world.deploy("a");
    world.deploy("a");
    world.store.set_traffic("a", {{1, 30}, {2, 70}});
    world.refresh();
    const auto shares = world.shares("a.example");
    REQUIRE(shares.size() == 2);
    CHECK(shares[0].version->facts().version == 1);
    CHECK(shares[0].percent == 30);
    CHECK(shares[1].percent == 70);
    const auto live = world.table.shares();
    REQUIRE(live.size() == 2);
    CHECK((live.at({"a", 1}).percent == 30 && live.at({"a", 2}).percent == 70));
    world.store.set_traffic("a", {});
    world.refresh();
    CHECK(world.table.routes().find("a.example", "/") != nullptr); // it is there
    CHECK(world.shares("a.example").empty());                      // and nothing of it is live
}

TEST_CASE("a version keeps its processes until what its program was given changes") {
    World world;
    world.deploy("a");
    world.deploy("b");
    world.refresh();
    const auto a = world.live("a.example"), b = world.live("b.example");
    world.store.set_routes("a", {store::Route::parse("new.example")});
    world.refresh();
    CHECK(world.shares("a.example").empty());
    CHECK(world.live("new.example") == a);
    world.store.set_env("a", "MODE", "fast");
    world.refresh();
    CHECK(world.live("new.example") != a);
    CHECK(world.live("new.example")->facts().given->values.environment == std::string("MODE=fast\0", 10));
    CHECK(world.live("b.example") == b);
}

TEST_CASE("a function that was deleted and made anew has nothing of the old one") {
    World world;
    world.deploy("a");
    world.refresh();
    const auto old = world.live("a.example");
    world.store.remove("a");
    for (const std::int64_t before = now_ms(); now_ms() == before;) {
    } // functions of a name are told apart by when they were made
    world.deploy("a");
    world.refresh();
    CHECK(world.live("a.example") != old);
}

TEST_CASE("what a manifest does not say of scale is the daemon's") {
    World world;
    world.deploy("plain");
    world.deploy("own", R"({"function":{"scale":{"max":7,"idle":"1s","queue":2,"queue-timeout":"3s"}}})");
    world.refresh();
    const auto& plain = world.live("plain.example")->facts();
    CHECK(plain.max == 3);
    CHECK(plain.idle_ns == kIdle);
    CHECK(plain.queue == 1024);
    const auto& own = world.live("own.example")->facts();
    CHECK(own.max == 7);
    CHECK(own.idle_ns == 1'000'000'000);
    CHECK(own.queue == 2);
    CHECK(own.queue_ns == 3'000'000'000);
}

TEST_CASE("a suspended machine's process lingers as long as the machine was idle, at most five minutes, or as told") {
    World world;
    constexpr std::uint64_t kSecond = 1'000'000'000;
    const std::pair<const char*, std::uint64_t> samples[] = {
        {R"("suspend":true)", kIdle},
        {R"("suspend":true,"idle":"10s")", 10 * kSecond},
        {R"("suspend":true,"idle":"1h")", 300 * kSecond},
        {R"("suspend":true,"idle":"1h","linger":"1h")", 3600 * kSecond},
        {R"("suspend":true,"linger":0)", 0},
        {R"("suspend":false)", 0},
    };
    for (const auto& [scale, expected] : samples) {
        CAPTURE(scale);
        world.deploy("a", std::string(R"({"function":{"ephemeral":false,"scale":{)") + scale + "}}}");
        world.refresh();
        CHECK(world.live("a.example")->facts().linger_ns == expected);
    }
}

TEST_CASE("machines rest when the manifest says so, and those that it keeps ready only then") {
    World world;
    const std::pair<const char*, unsigned> samples[] = {
        {R"({})", 2},
        {R"("rest":0)", 0},
        {R"("rest":"0.1ms")", 1},
        {R"("rest":"365h")", 365 * 3'600'000},
        {R"("rest":"8000h")", INT_MAX},
        {R"("min":1)", 0},
        {R"("min":1,"rest":"5s")", 5000},
    };
    for (const auto& [scale, expected] : samples) {
        CAPTURE(scale);
        const std::string text = scale;
        world.deploy("a", text == "{}" ? text : R"({"function":{"scale":{)" + text + "}}}");
        world.refresh();
        CHECK(world.live("a.example")->facts().rest_after_ms == expected);
    }
    world.deploy("a", R"({"function":{"ephemeral":false}})");
    world.refresh();
    CHECK(world.live("a.example")->facts().rest_after_ms == 0);
}

TEST_CASE("a version whose manifest is wrong is not live, which is noted once, and harms no other") {
    World world;
    world.deploy("good");
    world.deploy("bad", R"({"function":{"scale":{"max":0}}})");
    world.refresh();
    CHECK(world.live("bad.example") == nullptr);
    CHECK(world.live("good.example") != nullptr);
    REQUIRE(world.notes.size() == 1);
    CHECK(world.notes[0].find("bad v1 cannot be served: function.scale.max must be") == 0);
    world.table.refresh(true);
    CHECK(world.notes.size() == 1);
    world.deploy("bad");
    world.refresh();
    CHECK(world.live("bad.example")->facts().version == 2);
    CHECK(world.notes.size() == 1);
}

TEST_CASE("a version that is not live can be had by its number") {
    World world;
    world.deploy("a");
    world.deploy("a");
    world.refresh();
    CHECK(world.table.version("a", 1)->facts().name() == "a v1");
    CHECK(world.table.version("a", 2) == world.live("a.example"));
    CHECK_THROWS_AS(world.table.version("a", 3), store::NotFound);
    CHECK_THROWS_AS(world.table.version("b", 1), store::NotFound);
    CHECK(world.live("a.example")->facts().version == 2); // it went live by no means
}

TEST_CASE("addresses of TCP functions lead to the versions that listen there") {
    World world;
    const auto tcp = [](const std::string& listen) {
        return R"({"function":{"protocol":"tcp","listen":[)" + listen + "]}}";
    };
    world.deploy("pg", tcp(R"("127.0.0.1:5432","127.0.0.1:5433")"));
    world.deploy("pg", tcp(R"("127.0.0.1:5432")"));
    world.store.set_traffic("pg", {{1, 25}, {2, 75}});
    world.deploy("squats", tcp(R"("0.0.0.0:5432")")); // without a daemon, nobody refused it
    world.refresh();
    CHECK(world.table.routes().find("pg.example", "/") == nullptr); // routes are for HTTP
    auto table = world.table.addresses();
    REQUIRE(table.size() == 2);
    const auto shares = [&](const char* address) { return table.at(ListenAddress::parse("", address))->shares.size(); };
    CHECK(shares("127.0.0.1:5432") == 2);
    CHECK(shares("127.0.0.1:5433") == 1);
    CHECK(daemon::version_by_share(*table.at(ListenAddress::parse("", "127.0.0.1:5433")))->facts().version == 1);
    CHECK(world.notes == std::vector<std::string>{"squats cannot listen on 0.0.0.0:5432: pg does"});
    world.store.set_env("pg", "MODE", "fast");
    world.refresh();
    CHECK(world.notes.size() == 1); // said once
    world.store.remove("pg");
    world.refresh(); // only pg is read
    table = world.table.addresses();
    REQUIRE(table.size() == 1);
    CHECK(table.at(ListenAddress::parse("", "0.0.0.0:5432"))->function == "squats");
    world.store.remove("squats");
    world.refresh();
    CHECK(world.table.addresses().empty());
}

TEST_CASE("only what another process has changed is read again") {
    using Read = daemon::FunctionTable::Read;
    using Changes = std::vector<std::pair<daemon::FunctionTable::Identity, bool>>;
    World world;
    world.deploy("a");
    world.deploy("b");
    CHECK(world.table.refresh(false) == Read::all); // the first time
    CHECK(world.table.refresh(false) == Read::nothing);
    CHECK(world.table.functions().size() == 2);
    store::Tokens(world.other).create("nobody is served by it", store::kScopeRead, "");
    CHECK(world.table.refresh(false) == Read::nothing);
    world.store.set_env("a", "MODE", "fast");
    CHECK(world.table.refresh(false) == Read::some);
    CHECK(world.live("a.example")->facts().given->values.environment == std::string("MODE=fast\0", 10));
    CHECK(world.table.changes().empty()); // the same functions are there
    store::Secrets(world.other).set("b", "KEY", "k");
    CHECK(world.table.refresh(false) == Read::some);
    CHECK(world.live("b.example")->facts().given->values.environment == std::string("KEY=k\0", 6));
    const std::int64_t a = world.store.describe("a").created;
    world.store.remove("a");
    world.deploy("c");
    CHECK(world.table.refresh(false) == Read::some);
    CHECK(world.table.size() == 2);
    const Changes expected{{{"a", a}, false}, {{"c", world.store.describe("c").created}, true}};
    CHECK(world.table.changes() == expected);
    CHECK(world.table.changes().empty());
}

TEST_CASE("a secret for all reaches the functions that ask for it") {
    World world;
    world.deploy("asks", R"({"function":{"secrets":["KEY"]}})");
    world.deploy("other");
    world.refresh();
    const auto other = world.live("other.example");
    store::Secrets(world.other).set_for_all("KEY", "k", std::nullopt);
    CHECK(world.table.refresh(false) == daemon::FunctionTable::Read::all);
    CHECK(world.live("asks.example")->facts().given->values.environment == std::string("KEY=k\0", 6));
    CHECK(world.live("other.example") == other);
    store::Secrets(world.other).set("", "KEY", std::nullopt);
    world.refresh();
    CHECK(world.live("asks.example")->facts().given->values.environment.empty());
}

TEST_CASE("after more changes than the store keeps, nothing is missed") {
    World world;
    world.deploy("a");
    world.refresh();
    world.deploy("gone");
    world.store.remove("gone");
    world.deploy("new");
    {
        auto index = world.other.index();
        store::Transaction transaction(*index);
        for (std::uint64_t i = 0; i < store::kMaxChanges; ++i)
            store::note_change(*index, "a");
        CHECK(index->number("SELECT count(*) FROM change") == static_cast<std::int64_t>(store::kMaxChanges));
        transaction.commit();
    }
    CHECK(world.table.refresh(false) == daemon::FunctionTable::Read::all);
    CHECK(world.live("new.example") != nullptr);
    CHECK(world.table.size() == 2);
}

TEST_CASE("all versions of a function have their requests in one place, also one that comes when another goes") {
    World world;
    world.deploy("a");
    world.refresh();
    auto& requests = world.live("a.example")->requests(world.functions.logs.requests());
    requests.add({.version = 1, .status = 200, .method = "GET", .path = "/"});
    world.deploy("a");
    world.refresh();
    // The new version holds them before its first request: the old one may be gone by then.
    CHECK(world.functions.logs.requests().find("a", world.live("a.example")->facts().created).use_count() == 3);
    CHECK(&world.live("a.example")->requests(world.functions.logs.requests()) == &requests);
}

TEST_CASE("a function that cannot be read stays as it was, others are read, and it is retried") {
    World world;
    world.deploy("a");
    world.deploy("b");
    world.refresh();
    const auto set_percent = [&](const char* percent) {
        world.other.index()->execute(
            std::string("PRAGMA ignore_check_constraints = ON; UPDATE traffic SET percent = ") + percent +
            " WHERE function = (SELECT id FROM function WHERE name = 'a'); "
            "PRAGMA ignore_check_constraints = OFF");
    };
    world.store.set_env("a", "MODE", "fast");
    world.store.set_env("b", "MODE", "fast");
    set_percent("-1");
    world.refresh();
    CHECK(world.live("a.example")->facts().given->values.environment.empty());
    CHECK(world.live("b.example")->facts().given->values.environment == std::string("MODE=fast\0", 10));
    REQUIRE(world.notes.size() == 1);
    CHECK(world.notes[0].find("a stays as it was: ") == 0);
    world.store.set_env("b", "MODE", "slow");
    world.table.refresh(true); // all are read, and it is still so
    CHECK(world.live("a.example")->facts().given->values.environment.empty());
    CHECK(world.live("b.example")->facts().given->values.environment == std::string("MODE=slow\0", 10));
    CHECK(world.notes.size() == 1);
    set_percent("100");
    world.refresh();
    CHECK(world.live("a.example")->facts().given->values.environment == std::string("MODE=fast\0", 10));
}
