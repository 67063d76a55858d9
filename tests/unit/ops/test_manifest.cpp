// What is read of a manifest, and what is said of one that is wrong.
#include "src/ops/manifest.hpp"

#include <functional>
#include <string>

#include "src/store/errors.hpp"
#include "tests/catch.hpp"

using kvmserver::ops::manifest_facts;
using kvmserver::ops::ManifestFacts;
using kvmserver::store::BadValue;

namespace {

std::string said_of(const std::string& manifest) {
    try {
        manifest_facts(manifest);
    } catch (const BadValue& error) {
        return error.what();
    }
    return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

} // namespace

TEST_CASE("a manifest says routes, variables and the path of the health check") {
    const ManifestFacts facts = manifest_facts(R"({"function":{
        "routes": ["Hello.Example.com", "/api/*"],
        "env": {"MODE": "fast", "EMPTY": ""},
        "hooks": {"health": "/health?deep=1", "after-restore": "/later"},
        "scale": {"max": 3}}, "run": {"program": "python3", "args": ["a.py"]}, "other": 5})");
    REQUIRE(facts.routes);
    REQUIRE(facts.routes->size() == 2);
    CHECK(facts.routes->at(0).text() == "hello.example.com");
    CHECK(facts.routes->at(1).text() == "/api/*");
    CHECK(facts.env == std::map<std::string, std::string>{{"MODE", "fast"}, {"EMPTY", ""}});
    CHECK(facts.health == "/health?deep=1");
    CHECK(facts.after_restore == "/later");
    CHECK(facts.program == "python3");
    CHECK(manifest_facts(R"({"run":{"program":7}})").program.empty()); // whoever builds it refuses that
}

TEST_CASE("a manifest without routes is not one with an empty list of them") {
    CHECK_FALSE(manifest_facts("{}").routes);
    CHECK_FALSE(manifest_facts(R"({"function":{}})").routes);
    const auto none = manifest_facts(R"({"function":{"routes":[]}})").routes;
    REQUIRE(none);
    CHECK(none->empty());
    CHECK(manifest_facts(R"({"function":{"hooks":{"health":""}}})").health.empty());
}

TEST_CASE("a manifest's wrong value is named with what it must be") {
    struct Wrong {
        const char *manifest, *said;
    };
    for (const Wrong& wrong : {
             Wrong{R"({"function":[]})", "function must be a table"},
             Wrong{R"({"function":{"routes":"a.b"}})", "function.routes must be a list of strings"},
             Wrong{R"({"function":{"routes":[7]}})", "function.routes must be a string"},
             Wrong{R"({"function":{"routes":["a b"]}})", "route \"a b\""},
             Wrong{R"({"function":{"env":["A=1"]}})", "function.env must be a table"},
             Wrong{R"({"function":{"env":{"A":1}}})", "function.env.A must be a string"},
             Wrong{R"({"function":{"env":{"A-B":"1"}}})", "name \"A-B\""},
             Wrong{R"({"function":{"env":{"A":"x\u0000y"}}})", "value of A"},
             Wrong{R"({"function":{"hooks":"/x"}})", "function.hooks must be a table"},
             Wrong{R"({"function":{"hooks":{"health":true}}})", "function.hooks.health must be a string"},
             Wrong{R"({"function":{"hooks":{"health":"health"}}})", "must be a path that begins with /"},
             Wrong{R"({"function":{"hooks":{"health":"/a b"}}})", "without spaces and control characters"},
             Wrong{R"({"function":{"hooks":{"health":"/a\r\nX: 1"}}})", "without spaces and control characters"},
             Wrong{R"({"function":{"hooks":{"after-restore":"/a\r\nX: 1"}}})",
                   "function.hooks.after-restore must be without spaces and control characters"},
         }) {
        CAPTURE(wrong.manifest);
        CHECK(has(said_of(wrong.manifest), wrong.said));
    }
}

TEST_CASE("what is no JSON object of a sensible size is no manifest") {
    const std::string deep = "{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
    const std::string long_one = "{\"a\":\"" + std::string(1 << 20, 'x') + "\"}";
    for (const std::string& bad : {std::string(), std::string("[]"), std::string("{"), std::string("{} {}"),
                                   std::string("{\"a\":\"\xff\"}"), deep, long_one})
        CHECK(has(said_of(bad), "must be a JSON object of at most 1 MiB"));
}
