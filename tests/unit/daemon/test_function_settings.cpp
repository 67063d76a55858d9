// What a manifest says to the daemon, and the values that a function gets.
#include "src/daemon/function_settings.hpp"

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/catch.hpp"
#include "tinykvm/base/error.hpp"

using namespace kvmserver::daemon;

namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

std::string said_of(const std::string& manifest) {
    try {
        function_settings(manifest);
    } catch (const tinykvm::UserError& error) {
        return error.code() == tinykvm::ExitCode::usage ? error.what() : "another exit code";
    }
    return "";
}

std::string scale(const std::string& entry) { return R"({"function":{"scale":{)" + entry + "}}}"; }

} // namespace

TEST_CASE("a manifest that says nothing of scale leaves it to the daemon") {
    for (const char* manifest : {"{}", R"({"function":{}})", R"({"function":{"scale":{},"hooks":{}}})"}) {
        CAPTURE(manifest);
        const FunctionSettings settings = function_settings(manifest);
        CHECK(settings.scale.min == 0);
        CHECK_FALSE(settings.scale.max);
        CHECK_FALSE(settings.scale.idle_ns);
        CHECK_FALSE(settings.scale.queue);
        CHECK(settings.scale.queue_ns == 30 * kSecond);
        CHECK(settings.after_restore.empty());
        CHECK(settings.secrets.empty());
    }
}

TEST_CASE("all that a manifest can say to the daemon") {
    const FunctionSettings settings = function_settings(R"({"function":{
        "scale":{"min":1,"max":4,"idle":"2m","rest":"3s","queue":7,"queue-timeout":0.5},
        "hooks":{"after-restore":"/wake"},"secrets":["DB","API"],"versions":{"keep":3}}})");
    CHECK(settings.scale.min == 1);
    CHECK(settings.scale.max == 4u);
    CHECK(settings.scale.idle_ns == 120 * kSecond);
    CHECK(settings.scale.rest_ns == 3 * kSecond);
    CHECK(settings.scale.queue == 7u);
    CHECK(settings.scale.queue_ns == kSecond / 2);
    CHECK(settings.after_restore == "/wake");
    CHECK(settings.secrets == std::vector<std::string>{"DB", "API"});
    CHECK(function_settings(scale(R"("queue-timeout":"0")")).scale.queue_ns == 0); // no limit
}

TEST_CASE("a function that keeps its state has one machine, and says how many requests it serves at once") {
    const FunctionSettings settings = function_settings(R"({"function":{"ephemeral":false}})");
    CHECK(settings.kept);
    CHECK(settings.scale.min == 1);
    CHECK(settings.scale.max == 1u);
    CHECK(settings.concurrency == 32);
    CHECK(function_settings(R"({"function":{"ephemeral":false,"scale":{"concurrency":256,"queue":7}}})").concurrency ==
          256);
    const FunctionSettings reset = function_settings(R"({"function":{"ephemeral":true}})");
    CHECK_FALSE(reset.kept);
    CHECK(reset.scale.min == 0);
    CHECK_FALSE(reset.scale.max);
    CHECK(said_of(R"({"function":{"ephemeral":"no"}})").find("function.ephemeral must be true or false") !=
          std::string::npos);
    const std::string one_machine =
        " must be absent where function.ephemeral = false: function.scale.machines of them run all the time";
    for (const std::string key : {"min", "max", "idle"})
        CHECK(said_of(R"({"function":{"ephemeral":false,"scale":{")" + key + R"(":1}}})")
                  .find("function.scale." + key + one_machine) != std::string::npos);
    CHECK(
        said_of(R"({"function":{"ephemeral":false,"scale":{"rest":1}}})").find("function.scale.rest must be absent") ==
        0);
    for (const char* const without : {"", R"(,"suspend":false)"})
        CHECK(said_of(std::string(R"({"function":{"ephemeral":false,"scale":{"linger":1)") + without + "}}}")
                  .find("function.scale.linger must be absent") == 0);
    for (const char* number : {"0", "257", "1.5", "\"4\""})
        CHECK(said_of(std::string(R"({"function":{"ephemeral":false,"scale":{"concurrency":)") + number + "}}}")
                  .find("function.scale.concurrency must be a whole number from 1 to 256") != std::string::npos);
    CHECK(said_of(scale(R"("concurrency":4)")).find("function.scale.concurrency must be absent unless") !=
          std::string::npos);
}

TEST_CASE("of several machines that keep their state a header or a cookie leads to one") {
    const auto kept = [](const std::string& more) {
        return function_settings(R"({"function":{"ephemeral":false,"scale":{"machines":3})" + more + "}}");
    };
    CHECK(kept("").scale.min == 3);
    CHECK(kept("").scale.max == 3u);
    CHECK(kept("").sticky == Sticky{"", "kvmserver-machine"});
    CHECK(kept(R"(,"sticky":{"header":"X-Tenant"})").sticky == Sticky{"X-Tenant", ""});
    CHECK(kept(R"(,"sticky":{"cookie":"sid"})").sticky == Sticky{"", "sid"});
    CHECK(function_settings(R"({"function":{"ephemeral":false}})").sticky == Sticky{});
}

TEST_CASE("a setting that cannot be is refused by its key, with what it may be") {
    struct Wrong {
        std::string manifest;
        const char* key;
    };
    for (const Wrong& wrong : {
             Wrong{R"({"function":{"scale":5}})", "function.scale must be a table"},
             Wrong{scale(R"("min":-1)"), "function.scale.min must be a whole number from 0 to 1024"},
             Wrong{scale(R"("min":1.5)"), "function.scale.min must"},
             Wrong{scale(R"("max":0)"), "function.scale.max must be a whole number from 1 to 1024"},
             Wrong{scale(R"("max":1025)"), "function.scale.max must"},
             Wrong{scale(R"("max":18446744073709551615)"), "function.scale.max must"},
             Wrong{scale(R"("max":"2")"), "function.scale.max must"},
             Wrong{scale(R"("min":3,"max":2)"), "function.scale.max must be at least function.scale.min"},
             Wrong{scale(R"("idle":"soon")"), "function.scale.idle must be a time such as"},
             Wrong{scale(R"("idle":true)"), "function.scale.idle must"},
             Wrong{scale(R"("rest":"soon")"), "function.scale.rest must be a time such as"},
             Wrong{scale(R"("queue":1000001)"), "function.scale.queue must"},
             Wrong{scale(R"("queue-timeout":"-1s")"), "function.scale.queue-timeout must"},
             Wrong{R"({"function":{"hooks":{"after-restore":"wake"}}})", "function.hooks.after-restore must be a path"},
             Wrong{R"({"function":{"hooks":{"after-restore":1}}})", "function.hooks.after-restore must"},
             Wrong{R"({"function":{"hooks":{"before-snapshot":"x"}}})",
                   "function.hooks.before-snapshot must be a path"},
             Wrong{R"({"function":{"secrets":"DB"}})", "function.secrets must be an array of strings"},
             Wrong{R"({"function":{"secrets":["DB",1]}})", "function.secrets must"},
             Wrong{R"({"function":{"versions":{"keep":0}}})", "function.versions.keep must"},
         }) {
        CAPTURE(wrong.manifest);
        CHECK(said_of(wrong.manifest).find(wrong.key) == 0);
    }
}

TEST_CASE("a TCP function names its addresses") {
    CHECK_FALSE(function_settings(R"({"function":{"protocol":"http"}})").tcp);
    const auto tcp = function_settings(R"({"server-first":true,"function":{"protocol":"tcp","drain":"2m",
        "listen":["[::1]:5432",":80","localhost:5432"],"hooks":{"health":"","after-restore":""},
        "scale":{"max":2}}})")
                         .tcp;
    REQUIRE(tcp);
    std::vector<std::string> texts;
    for (const auto& address : tcp->listen)
        texts.push_back(address.text());
    CHECK(texts == std::vector<std::string>{"[::1]:5432", "0.0.0.0:80", "127.0.0.1:5432"});
    CHECK(tcp->server_first);
    CHECK(tcp->drain_ns == 120 * kSecond);
    const auto plain = function_settings(R"({"function":{"protocol":"tcp","listen":["127.0.0.1:1"]}})").tcp;
    REQUIRE(plain);
    CHECK_FALSE(plain->server_first);
    CHECK(plain->drain_ns == 30 * kSecond);
}

TEST_CASE("a function that passes TLS through has routes and no address") {
    const auto tcp = function_settings(R"({"function":{"protocol":"tls-passthrough","drain":"1s",
        "routes":["a.example"]}})")
                         .tcp;
    REQUIRE(tcp);
    CHECK(tcp->by_name);
    CHECK(tcp->listen.empty());
    CHECK(tcp->drain_ns == kSecond);
    CHECK(said_of(R"({"function":{"protocol":"tls-passthrough","listen":["127.0.0.1:1"]}})") ==
          "function.listen is for functions with protocol = \"tcp\"");
    CHECK(said_of(R"({"server-first":true,"function":{"protocol":"tls-passthrough"}})").find("server-first excludes") ==
          0);
    CHECK(said_of(R"({"function":{"protocol":"tls-passthrough","hooks":{"health":"/"}}})") ==
          "function.hooks.health is an HTTP request, which a function with protocol = \"tls-passthrough\" does not "
          "answer");
}

TEST_CASE("what does not go with a protocol is refused by its name") {
    const auto tcp = [](const std::string& more) {
        return said_of(R"({"function":{"protocol":"tcp","listen":["127.0.0.1:5432"])" + more + "}}");
    };
    const auto listen = [](const std::string& list) {
        return said_of(R"({"function":{"protocol":"tcp","listen":)" + list + "}}");
    };
    CHECK(tcp("").empty());
    CHECK(tcp(R"(,"routes":["a.example"])") ==
          "function.routes is for HTTP functions; a function with protocol = \"tcp\" has function.listen");
    CHECK(tcp(R"(,"hooks":{"health":"/"})").find("function.hooks.health is an HTTP request") == 0);
    CHECK(tcp(R"(,"hooks":{"after-restore":"/"})").find("function.hooks.after-restore is an HTTP request") == 0);
    CHECK(tcp(R"(,"hooks":{"before-snapshot":"/"})").find("function.hooks.before-snapshot is an HTTP request") == 0);
    CHECK(tcp(R"(,"drain":"soon")").find("function.drain must be a time") == 0);
    CHECK(said_of(R"({"function":{"protocol":"udp"}})") ==
          "function.protocol must be \"http\", \"tcp\" or \"tls-passthrough\"");
    CHECK(said_of(R"({"function":{"protocol":6}})").find("function.protocol must") == 0);
    CHECK(said_of(R"({"function":{"protocol":"tcp"}})").find("function.protocol = \"tcp\" needs function.listen") == 0);
    CHECK(said_of(R"({"function":{"listen":[]}})") == "function.listen is for functions with protocol = \"tcp\"");
    CHECK(said_of(R"({"function":{"drain":"1s"}})") ==
          "function.drain is for functions with protocol = \"tcp\" or \"tls-passthrough\"");
    CHECK(said_of(R"({"server-first":1,"function":{"protocol":"tcp","listen":["127.0.0.1:1"]}})") ==
          "server-first must be true or false");
    CHECK(listen("[]").empty()); // for functions whose storage it is
    CHECK(listen("{}").find("function.listen must be an array of up to 16 addresses") == 0);
    CHECK(listen("\"127.0.0.1:1\"").find("function.listen must be an array") == 0);
    CHECK(listen("[1]") == "function.listen must be an array of strings");
    CHECK(listen(R"(["unix:/run/a"])").find("function.listen \"unix:/run/a\": a function has no Unix sockets") == 0);
    CHECK(listen(R"(["::1:80"])").find("function.listen \"::1:80\": write an IPv6 address in brackets") == 0);
    CHECK(listen(R"(["[::ffff:1.2.3.4]:80"])").find("without brackets") != std::string::npos);
    for (const char* wrong : {"80", "a.example:80", "127.0.0.1", "[127.0.0.1]:80", "1.2.3:80"}) {
        CAPTURE(wrong);
        CHECK(listen("[\"" + std::string(wrong) + "\"]").find("write ADDRESS:PORT") != std::string::npos);
    }
    for (const char* wrong :
         {"127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:x", "127.0.0.1:", "127.0.0.1:80x", ":-1", "[::1]"}) {
        CAPTURE(wrong);
        CHECK(listen("[\"" + std::string(wrong) + "\"]").find("a number from 1 to 65535") != std::string::npos);
    }
    CHECK(listen(R"(["127.0.0.1:80","0.0.0.0:80"])") ==
          "function.listen has both 127.0.0.1:80 and 0.0.0.0:80, which overlap");
    CHECK(listen(R"(["[::]:80","0.0.0.0:80","0.0.0.0:81"])").empty());
}

TEST_CASE("durations by their units; a number alone is seconds") {
    CHECK(duration_ns("0") == 0u);
    CHECK(duration_ns("60") == 60 * kSecond);
    CHECK(duration_ns("60s") == 60 * kSecond);
    CHECK(duration_ns("1.5s") == kSecond * 3 / 2);
    CHECK(duration_ns("500ms") == kSecond / 2);
    CHECK(duration_ns("2m") == 120 * kSecond);
    CHECK(duration_ns("1h") == 3600 * kSecond);
    CHECK(duration_ns("8760h")); // a year
    for (const char* bad : {"", "s", "-1s", "1 s", "1S", "1d", "1sx", "nan", "inf", "8761h", "1e300"}) {
        CAPTURE(bad);
        CHECK_FALSE(duration_ns(bad));
    }
}

TEST_CASE("a function gets its variables, its own secrets, and of those for all what it asks for") {
    FunctionSettings settings;
    settings.secrets = {"SHARED"};
    const Values values =
        values_of(settings, {{"A", "1"}, {"B", "2"}}, {{"OWN", "o"}, {"SHARED", "s"}, {"OTHER", "x"}}, {"OWN"});
    CHECK(values.environment == std::string("A=1\0B=2\0OWN=o\0SHARED=s\0", 23));
    CHECK(values.body.empty()); // there is no hook
}

TEST_CASE("a secret hides a variable of its name from the program, and both reach the hook") {
    FunctionSettings settings;
    settings.after_restore = "/wake";
    const Values values = values_of(settings, {{"KEY", "open"}}, {{"KEY", "hidden"}}, {"KEY"});
    CHECK(values.environment == std::string("KEY=hidden\0", 11));
    CHECK(nlohmann::json::parse(values.body) ==
          nlohmann::json::parse(R"({"env":{"KEY":"open"},"secrets":{"KEY":"hidden"}})"));
    CHECK(nlohmann::json::parse(values_of(settings, {}, {}, {}).body) ==
          nlohmann::json::parse(R"({"env":{},"secrets":{}})"));
}
