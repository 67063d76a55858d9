// What a deploy changes of routes and variables, and when it does not happen.
#include "src/ops/deploy.hpp"

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/store/errors.hpp"
#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"

using namespace kvmserver;
using ops::DeployChange;
using ops::DeployPlan;
using ops::Env;
using store::Route;

namespace {

DeployPlan plan_of(const std::string& manifest = "") {
    DeployPlan plan;
    plan.name = "hello";
    if (!manifest.empty())
        plan.manifest = manifest;
    return plan;
}

std::vector<std::string> texts(const std::vector<Route>& routes) {
    std::vector<std::string> all;
    for (const Route& route : routes)
        all.push_back(route.text());
    return all;
}

using Texts = std::vector<std::string>;

class World {
public:
    store::DeployResult deploy(const DeployPlan& plan) {
        const auto hold = store::test::import(store, store::test::sample_pieces(++seed_));
        return ops::deploy(plan, hold.digest(), "", functions).result;
    }
    Env env() { return functions.describe("hello").env; }
    Texts routes() { return texts(functions.describe("hello").routes); }

    store::test::TempFolder folder;
    store::Store store{folder / "store"};
    store::Functions functions{store};

private:
    unsigned seed_ = 0;
};

} // namespace

TEST_CASE("a new function without routes gets its name below localhost") {
    World world;
    CHECK(texts(ops::change_of(plan_of(), nullptr).routes_after()) == Texts{"hello.localhost"}); // no store yet
    CHECK(world.deploy(plan_of()).version == 1);
    CHECK(world.routes() == Texts{"hello.localhost"});
}

TEST_CASE("routes of the command line go before the manifest's, and these before what there was") {
    World world;
    world.deploy(plan_of(R"({"function":{"routes":["a.example"]}})"));
    CHECK(world.routes() == Texts{"a.example"});
    DeployPlan plan = plan_of(R"({"function":{"routes":["b.example"]}})");
    CHECK(texts(ops::change_of(plan, &world.functions).routes_after()) == Texts{"b.example"});
    plan.routes = std::vector<Route>{Route::parse("c.example")};
    world.deploy(plan);
    CHECK(world.routes() == Texts{"c.example"});
    world.deploy(plan_of(R"({"function":{}})")); // says nothing of routes
    CHECK(world.routes() == Texts{"c.example"});
    world.deploy(plan_of(R"({"function":{"routes":[]}})"));
    CHECK(world.routes().empty());
}

TEST_CASE("a TCP function has addresses instead of routes, and gets a route when it becomes an HTTP function") {
    World world;
    world.deploy(plan_of());
    const char* tcp = R"({"function":{"protocol":"tcp","listen":["localhost:5432"]}})";
    DeployPlan plan = plan_of(tcp);
    CHECK(ops::change_of(plan, &world.functions).listen == Texts{"127.0.0.1:5432"});
    world.deploy(plan);
    CHECK(world.routes().empty());
    plan.routes = std::vector<Route>{Route::parse("c.example")};
    CHECK_THROWS_AS(ops::change_of(plan, &world.functions), store::BadValue);
    world.deploy(plan_of("{}"));
    CHECK(world.routes() == Texts{"hello.localhost"});
    CHECK(ops::change_of(plan_of("{}"), &world.functions).listen.empty());
}

TEST_CASE("variables that the last manifest set go with it; those set by hand stay") {
    World world;
    world.deploy(plan_of(R"({"function":{"env":{"GOES":"1","STAYS":"1","CHANGED":"1"}}})"));
    world.functions.set_env("hello", "BY_HAND", "yes");
    world.functions.set_env("hello", "CHANGED", "by hand");
    const DeployPlan plan = plan_of(R"({"function":{"env":{"STAYS":"2","NEW":"3"}}})");
    const Env expected{{"STAYS", "2"}, {"NEW", "3"}, {"BY_HAND", "yes"}, {"CHANGED", "by hand"}};
    CHECK(ops::change_of(plan, &world.functions).env_after() == expected);
    world.deploy(plan);
    CHECK(world.env() == expected);
    world.deploy(plan_of()); // without a manifest nothing is said of them
    CHECK(world.env() == expected);
}

TEST_CASE("what was set by hand and is in the manifest gets the manifest's value, and is told of") {
    World world;
    const char* const manifest = R"({"function":{"env":{"SET":"1","UNSET":"1","SAME":"1","ITS_OWN":"1"}}})";
    world.deploy(plan_of(manifest));
    world.functions.set_env("hello", "SET", "by hand");
    world.functions.set_env("hello", "UNSET", std::nullopt);
    world.functions.set_env("hello", "ADDED", "by hand");
    const auto replaced = [&](const char* wanted) {
        return ops::change_of(plan_of(wanted), &world.functions).env_replaced;
    };
    CHECK(replaced(manifest) == Texts{"SET", "UNSET"});
    CHECK(replaced(R"({"function":{"env":{"ITS_OWN":"2","NEW":"1","ADDED":"2"}}})") == Texts{"ADDED"});
    CHECK(replaced(R"({"function":{"env":{"SET":"by hand"}}})").empty());
    world.deploy(plan_of(manifest));
    CHECK(replaced(manifest).empty());
}

TEST_CASE("a version that does not go live leaves routes and variables of the live one alone") {
    World world;
    world.deploy(plan_of(R"({"function":{"routes":["a.example"],"env":{"A":"1"}}})"));
    DeployPlan plan = plan_of(R"({"function":{"routes":["b.example"],"env":{"B":"2"}}})");
    plan.activate = false;
    CHECK(world.deploy(plan).version == 2);
    CHECK(world.routes() == Texts{"a.example"});
    CHECK(world.env() == Env{{"A", "1"}});
    CHECK(ops::live_of(world.functions.versions("hello")) == std::vector<store::Live>{{1, 100}});
}

TEST_CASE("a deploy on condition of what is live") {
    World world;
    const auto tried = [&](std::uint64_t version) {
        DeployPlan plan = plan_of();
        plan.if_version = version;
        try {
            ops::change_of(plan, &world.functions);
            return std::string();
        } catch (const store::Conflict& error) {
            return std::string(error.what());
        }
    };
    CHECK(tried(0).empty());
    CHECK(tried(1) == "there is no function hello yet, so v1 is not live");
    world.deploy(plan_of());
    world.deploy(plan_of());
    CHECK(tried(2).empty());
    CHECK(tried(1) == "hello v2 is live, not v1");
    CHECK_FALSE(tried(0).empty());
    world.functions.set_traffic("hello", {{1, 90}, {2, 10}});
    CHECK(tried(1).empty()); // that gets most
    CHECK(tried(2) == "hello v1, v2 is live, not v2");
    world.functions.set_traffic("hello", {});
    CHECK(tried(1) == "hello nothing is live, not v1");
    CHECK(tried(0) == "there is a function hello already");
}

TEST_CASE("a deploy on condition that nobody changed the function meanwhile") {
    World world;
    DeployPlan plan = plan_of();
    plan.if_match = "";
    CHECK(world.deploy(plan).version == 1);
    CHECK_THROWS_AS(world.deploy(plan), store::StaleEtag);
    const std::string etag = world.functions.describe("hello").etag;
    plan.if_match = etag;
    CHECK(world.deploy(plan).version == 2);
    CHECK_THROWS_AS(world.deploy(plan), store::StaleEtag);
    CHECK(world.functions.versions("hello").size() == 2);
}

TEST_CASE("a route that another function has is refused before anything is brought") {
    World world;
    store::test::deploy(world.store, "other", 7, {"taken.example"});
    try {
        ops::change_of(plan_of(R"({"function":{"routes":["Taken.example"]}})"), &world.functions);
        FAIL("it was accepted");
    } catch (const store::RouteTaken& error) {
        CHECK(error.owner() == "other");
        CHECK(error.route() == "taken.example");
    }
    world.deploy(plan_of(R"({"function":{"routes":["mine.example"]}})"));
    CHECK_NOTHROW(ops::change_of(plan_of(R"({"function":{"routes":["mine.example"]}})"), &world.functions));
}

TEST_CASE("a name or a manifest that the store would not take is refused before anything is brought") {
    DeployPlan plan = plan_of();
    plan.name = "Hello_World";
    CHECK_THROWS_AS(ops::change_of(plan, nullptr), store::BadValue);
    CHECK_THROWS_AS(ops::change_of(plan_of(R"({"function":{"routes":7}})"), nullptr), store::BadValue);
}

TEST_CASE("a dry run tells what would be and what is") {
    World world;
    const DeployPlan plan = plan_of(R"({"function":{"routes":["b.example"],"env":{"A":"2"}}})");
    const auto fresh = ops::change_json(plan, ops::change_of(plan, &world.functions));
    CHECK(fresh.at("new") == true);
    CHECK(fresh.at("before") == nlohmann::json::array());
    CHECK(fresh.at("routes_before") == nlohmann::json::array());
    CHECK(fresh.at("env_before") == nlohmann::json::object());
    world.deploy(plan_of(R"({"function":{"routes":["a.example"],"env":{"A":"1"}}})"));
    CHECK(ops::change_json(plan, ops::change_of(plan, &world.functions)) ==
          nlohmann::json::parse(R"({"name":"hello","dry_run":true,"new":false,"activate":true,
              "before":[{"version":1,"percent":100}], "routes":["b.example"],"routes_before":["a.example"],"listen":[],
              "env":{"A":"2"},"env_before":{"A":"1"},"env_replaced":[]})"));
    CHECK(world.routes() == Texts{"a.example"});
}
