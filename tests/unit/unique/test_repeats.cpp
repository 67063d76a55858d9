#include "src/unique/repeats.hpp"
#include "tests/catch.hpp"

using kvmserver::unique::find_repeats;

namespace {

// The first reply of every clone, the second of the same machine, and what was found in them.
std::vector<std::string> repeats(const std::string& first, const std::string& second, const std::string& other) {
    std::vector<std::string> out;
    for (const auto& repeat : find_repeats(first, second, {other, other}))
        out.push_back(repeat.value + " in " + repeat.where);
    return out;
}

TEST_CASE("a token that clones share but one machine does not give twice would repeat") {
    const std::string a = "id 550e8400-e29b-41d4-a716-446655440000!", b = "id 9f1c2b34-0000-4abc-8def-0123456789ab!";
    CHECK(repeats(a, b, a) == std::vector<std::string>{"550e8400-e29b-41d4-a716-446655440000 in its body"});
    CHECK(repeats(a, b, "id 11111111-2222-4333-8444-555555555555!").empty()); // drawn anew in each clone
    CHECK(repeats(a, a, a).empty());                                          // a constant
    CHECK(repeats("0.7312984512", "0.1123581321", "0.7312984512").size() == 1);
    CHECK(repeats("aB3$x", "zzzzz", "aB3$x").empty()); // too short
    CHECK(repeats("", "", "").empty());
    // All of the others must have it.
    CHECK(find_repeats(a, b, {a, b}).empty());
}

TEST_CASE("headers are named") {
    const std::string head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Request-Id: ";
    const auto found = repeats(head + "q8Zk2LmN0pQr\r\n\r\nhello", head + "Aa7Yy6Xx5Ww4\r\n\r\nhello",
                               head + "q8Zk2LmN0pQr\r\n\r\nhello");
    CHECK(found == std::vector<std::string>{"q8Zk2LmN0pQr in its header x-request-id"});
}

TEST_CASE("counters, words and times are no random values") {
    CHECK(repeats("request 00000012", "request 00000013", "request 00000012").empty());
    CHECK(repeats("visitor-000999", "visitor-001000", "visitor-000999").empty());
    CHECK(repeats("good morning everyone", "good evening everybody", "good morning everyone").empty());
    CHECK(repeats("cold-start", "already-warm", "cold-start").empty());
    CHECK(repeats("2026-11-22T10:11:12Z", "2026-11-22T10:11:13Z", "2026-11-22T10:11:12Z").empty());
}

TEST_CASE("each value is told once, and not more than eight") {
    std::string first, second;
    for (int i = 0; i < 20; ++i) {
        first += "a1b2c3d4e5f" + std::to_string(100000 * i) + " ";
        second += "zyxwvut9876" + std::to_string(100000 * i) + " ";
    }
    CHECK(repeats(first, second, first).size() == 8);
    CHECK(repeats("a1b2c3d4e5 a1b2c3d4e5", "z9y8x7w6v5", "a1b2c3d4e5").size() == 1);
}

} // namespace
