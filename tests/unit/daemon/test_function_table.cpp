// What the store says is live, as the daemon routes by it: which version, with which settings, and what goes on when
// something changes.
#include "src/daemon/function_table.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/common/clock.hpp"
#include "src/store/errors.hpp"
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
                                {.machines = 3, .idle_ns = kIdle},
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
    CHECK(world.live("a.example")->facts().name == "a v1");
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
    CHECK(world.table.shares() ==
          std::map<std::pair<std::string, std::uint64_t>, unsigned>{{{"a", 1}, 30}, {{"a", 2}, 70}});
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
    CHECK(world.live("new.example")->facts().values.environment == std::string("MODE=fast\0", 10));
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
    CHECK(world.table.version("a", 1)->facts().name == "a v1");
    CHECK(world.table.version("a", 2) == world.live("a.example"));
    CHECK_THROWS_AS(world.table.version("a", 3), store::NotFound);
    CHECK_THROWS_AS(world.table.version("b", 1), store::NotFound);
    CHECK(world.live("a.example")->facts().version == 2); // it went live by no means
}
