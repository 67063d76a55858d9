// Replies of etcd's gateway, and the lines of a watch in odd pieces.
#include <string>
#include <string_view>
#include <vector>

#include "src/etcd/json.hpp"
#include "src/etcd/watch_reply.hpp"
#include "tests/catch.hpp"

using namespace kvmserver::etcd;

namespace {

constexpr std::size_t kLongest = 1000;

std::vector<std::string> all_of(Lines& lines) {
    std::vector<std::string> out;
    while (auto line = lines.next())
        out.push_back(std::move(*line));
    return out;
}

// "p/a" is cC9h, "p/b" cC9i.
std::string put(const std::string& key, int changed) {
    return R"({"kv":{"key":")" + key + R"(","create_revision":"1","mod_revision":")" + std::to_string(changed) +
           R"(","value":"dg=="}})";
}

std::string reply(const std::string& more, int revision = 50) {
    return R"({"result":{"header":{"revision":")" + std::to_string(revision) + R"("})" + more + "}}";
}

} // namespace

TEST_CASE("lines are the same in whatever pieces they come") {
    const std::string text = "one\n\ntwo\nthree\nrest";
    for (std::size_t size = 1; size <= text.size(); ++size) {
        CAPTURE(size);
        Lines lines(kLongest);
        std::vector<std::string> found;
        for (std::size_t at = 0; at < text.size(); at += size) {
            REQUIRE(lines.add(std::string_view(text).substr(at, size)));
            for (std::string& line : all_of(lines))
                found.push_back(std::move(line));
        }
        CHECK(found == std::vector<std::string>{"one", "two", "three"});
        CHECK(lines.rest() == "rest");
    }
}

TEST_CASE("a line that never ends is refused") {
    Lines lines(10);
    REQUIRE(lines.add("123\n12345"));
    CHECK(all_of(lines).size() == 1);
    CHECK(lines.add("67890"));
    CHECK_FALSE(lines.add("1"));
}

TEST_CASE("batches of a watch") {
    WatchReader reader("p/", 5);
    CHECK_FALSE(reader.read(reply(R"(,"created":true)")).batch);
    CHECK(reader.told() == 4);

    SECTION("events of one revision are in one batch, and its revision is that of the last event") {
        const auto line = reader.read(reply(R"(,"events":[)" + put("cC9h", 7) + "," + put("cC9i", 7) + "," +
                                            R"({"type":"DELETE","kv":{"key":"cC9h","mod_revision":"9"}}])"));
        REQUIRE(line.batch);
        CHECK(line.batch->revision == 9);
        REQUIRE(line.batch->events.size() == 3);
        CHECK(line.batch->events[0].entry.key == "a");
        CHECK(line.batch->events[0].entry.value == "v");
        CHECK(line.batch->events[1].entry.changed == 7);
        CHECK_FALSE(line.batch->events[1].deleted);
        CHECK(line.batch->events[2].deleted);
        CHECK(reader.told() == 9);
    }
    SECTION("fragments wait for the rest of their last revision") {
        CHECK_FALSE(reader.read(reply(R"(,"fragment":true,"events":[)" + put("cC9h", 5) + "]")).batch);
        const auto first =
            reader.read(reply(R"(,"fragment":true,"events":[)" + put("cC9i", 5) + "," + put("cC9h", 8) + "]"));
        REQUIRE(first.batch);
        CHECK(first.batch->revision == 7);
        CHECK(first.batch->events.size() == 2);
        const auto last = reader.read(reply(R"(,"events":[)" + put("cC9i", 8) + "]"));
        REQUIRE(last.batch);
        CHECK(last.batch->revision == 8);
        CHECK(last.batch->events.size() == 2);
    }
    SECTION("progress is a batch without events, unless it tells nothing new") {
        const auto line = reader.read(reply("", 20));
        REQUIRE(line.batch);
        CHECK(line.batch->revision == 20);
        CHECK(line.batch->events.empty());
        CHECK_FALSE(reader.read(reply("", 20)).batch);
        CHECK_FALSE(reader.read(reply("", 19)).batch);
    }
    SECTION("what was told is not told again") {
        REQUIRE(reader.read(reply(R"(,"events":[)" + put("cC9h", 6) + "]")).batch);
        CHECK_FALSE(reader.read(reply(R"(,"events":[)" + put("cC9h", 6) + "]")).batch);
    }
    SECTION("its ends") {
        CHECK(reader.read(reply(R"(,"canceled":true,"compact_revision":"30")")).compacted);
        const auto denied = reader.read(
            reply(R"(,"canceled":true,"cancel_reason":"rpc error: code = X desc = etcdserver: permission denied")"));
        CHECK((denied.error && denied.error->text == "etcdserver: permission denied"));
        CHECK((denied.error && denied.error->is_about_permission()));
        const auto other = reader.read(reply(R"(,"canceled":true)"));
        CHECK((other.error && !other.error->is_about_permission() && !other.compacted));
        const auto error =
            reader.read(R"({"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader"}})");
        CHECK((error.error && error.error->is_away() && error.error->is_not_done()));
    }
    SECTION("nonsense") {
        for (const std::string& bad :
             {std::string("no JSON"), std::string("[]"), std::string("{}"), std::string(R"({"result":[]})"),
              reply(R"(,"events":{})"), reply(R"(,"events":[{}])"), reply(R"(,"events":[1])"),
              reply(R"(,"events":[)" + put("cC9h", 9) + "," + put("cC9h", 8) + "]"),
              reply(R"(,"events":[)" + put("cS9h", 9) + "]"), reply(R"(,"events":[)" + put("cC9", 9) + "]"),
              reply(R"(,"events":[{"type":"MOVE","kv":{"key":"cC9h","mod_revision":"9"}}])"),
              reply(R"(,"canceled":"yes")"), reply("", -1)}) {
            CAPTURE(bad);
            CHECK_THROWS_AS(reader.read(bad), BadReply);
        }
    }
}

TEST_CASE("numbers are texts or numbers, and nothing else") {
    const Json json =
        parse_reply(R"({"a":"-9223372036854775808","b":7,"c":"1x","d":"9223372036854775808","e":[],"f":null,"g":1.5})");
    CHECK(number_in(json, "a") == INT64_MIN);
    CHECK(number_in(json, "b") == 7);
    CHECK(number_in(json, "f") == 0);
    CHECK(number_in(json, "missing") == 0);
    for (const char* bad : {"c", "d", "e", "g"}) {
        CAPTURE(bad);
        CHECK_THROWS_AS(number_in(json, bad), BadReply);
    }
}

TEST_CASE("JSON that would take much memory or stack is refused") {
    CHECK_THROWS_AS(parse_reply("{\"a\":" + std::string(100'000, '[')), BadReply);
    CHECK_THROWS_AS(parse_reply("{\"a\":" + std::string(20, '[') + std::string(20, ']') + "}"), BadReply);
    std::string many = "{\"a\":[0";
    for (int i = 0; i < 3'000'000; ++i)
        many += ",0";
    CHECK_THROWS_AS(parse_reply(many + "]}"), BadReply);
    CHECK_THROWS_AS(parse_reply("{\"a\":"), BadReply);
}

TEST_CASE("errors of etcd and of others") {
    const auto old = error_in(R"({"error":"etcdserver: no leader","message":"etcdserver: no leader","code":14})", 503);
    CHECK(old.text == "etcdserver: no leader");
    CHECK((old.is_away() && old.is_not_done()));
    const auto late = error_in(R"({"message":"etcdserver: request timed out","code":14})", 503);
    CHECK((late.is_away() && !late.is_not_done()));
    CHECK(error_in(R"({"message":"etcdserver: invalid auth token","code":16})", 401).wants_login());
    CHECK(error_in(R"({"message":"etcdserver: user name is empty","code":3})", 400).wants_login());
    const auto proxy = error_in("<html>\r\nBad Gateway", 502);
    CHECK((proxy.is_away() && !proxy.is_not_done()));
    CHECK_FALSE(error_in("Not Found\n", 404).is_away());
    const auto ugly = error_in("{\"message\":\"a\\nb\\u001b" + std::string(1000, 'x') + "\",\"code\":3}", 400);
    CHECK(ugly.text.size() == 200);
    CHECK(ugly.text.starts_with("a b xx"));
}

TEST_CASE("the end of a prefix is the first key after all that begin with it") {
    CHECK(end_of_prefix("a/") == "a0");
    CHECK(end_of_prefix("a\xff\xff") == "b");
    CHECK(end_of_prefix("\xff") == std::string(1, '\0'));
}
