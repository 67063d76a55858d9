// What the API and the commands say of things in the store.
#include "src/ops/json.hpp"

#include <nlohmann/json.hpp>

#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"

using namespace kvmserver;
using nlohmann::json;

TEST_CASE("a function is told with its live versions, their manifests, and the names of its secrets alone") {
    const store::test::TempFolder folder;
    store::Store store(folder / "store");
    store::test::deploy(store, "hello", 5, {"a.example", "/x/*"});
    store::Functions functions(store);
    functions.set_env("hello", "A", "1");
    store::Secrets(store).set("hello", "KEY", "hidden");
    const json told = ops::details_json(functions.describe("hello"));
    CHECK(told.at("name") == "hello");
    CHECK(told.at("live") == json::parse(R"([{"version":1,"percent":100}])"));
    CHECK(told.at("versions") == 1);
    CHECK(told.at("routes").size() == 2);
    CHECK(told.at("env") == json::parse(R"({"A":"1"})"));
    CHECK(told.at("secrets") == json::parse(R"(["KEY"])"));
    CHECK(told.dump().find("hidden") == std::string::npos);
    const json& version = told.at("live_versions").at(0);
    CHECK(version.at("manifest") == json::parse(R"({"seed":5})"));
    CHECK(version.at("state") == "ready");
    CHECK(version.at("snapshot") == "sha256:" + functions.version("hello", 1).snapshot.hex());
    CHECK_FALSE(version.contains("ceilings")); // it has none
}

TEST_CASE("what a version and a token have not is left out") {
    store::VersionInfo version;
    version.ceilings = R"({"max-memory":5})";
    CHECK(ops::version_json(version).at("ceilings").at("max-memory") == 5);

    store::TokenInfo token;
    token.name = "ci";
    json told = ops::token_json(token);
    for (const char* unknown : {"expires", "last_used", "ceilings"})
        CHECK_FALSE(told.contains(unknown));
    token.expires = 1000;
    token.last_used = 2000;
    told = ops::token_json(token);
    CHECK(told.at("expires") == "1970-01-01T00:00:01Z");
    CHECK(told.at("last_used") == "1970-01-01T00:00:02Z");
}

TEST_CASE("a store is clean in words as in its findings") {
    store::VerifyReport report;
    CHECK(ops::verify_json(report).at("clean") == report.clean());
    report.findings = {{store::Finding::Kind::broken, "a"},
                       {store::Finding::Kind::repaired, "b"},
                       {store::Finding::Kind::repairable, "c"},
                       {store::Finding::Kind::note, "d"}};
    const json told = ops::verify_json(report);
    CHECK(told.at("clean") == false);
    CHECK(told.at("findings") == json::parse(R"([{"kind":"broken","line":"a"},{"kind":"repaired","line":"b"},
        {"kind":"repairable","line":"c"},{"kind":"note","line":"d"}])"));
}
