// A function's reply as an object.
#include "src/admin/wrapped_reply.hpp"
#include "tests/catch.hpp"

using namespace kvmserver;
using namespace kvmserver::admin;

namespace {

nlohmann::json of_body(std::string body) {
    daemon::InvokeReply reply;
    reply.body = std::move(body);
    return wrapped(reply);
}

} // namespace

TEST_CASE("a wrapped reply has what the function sent") {
    daemon::InvokeReply reply;
    reply.status = 302;
    reply.reason = "Found";
    reply.headers = {{"Location", "https://elsewhere"}, {"Set-Cookie", "a=1"}, {"Set-Cookie", "b=2"}, {"X", "caf\xe9"}};
    reply.body = "gone";
    reply.version = 3;
    reply.request_id = "0123";
    reply.cold = true;
    reply.total_us = 1500;
    const nlohmann::json object = wrapped(reply);
    CHECK(object.at("status") == 302);
    CHECK(object.at("reason") == "Found");
    CHECK(object.at("headers") ==
          nlohmann::json::parse(
              R"([["Location","https://elsewhere"],["Set-Cookie","a=1"],["Set-Cookie","b=2"],["X","café"]])"));
    CHECK(object.at("body") == "gone");
    CHECK(object.at("encoding") == "text");
    CHECK(object.at("version") == 3);
    CHECK(object.at("cold") == true);
    CHECK(object.at("timing_ms").at("total") == 1.5);
    CHECK(object.at("cut") == false);
}

TEST_CASE("a body that is not UTF-8 is wrapped as base64") {
    for (const auto& [bytes, text] : {std::pair{"\xff", "/w=="}, {"\xff\xfe", "//4="}, {"\xff\xfe\xfd", "//79"}}) {
        const nlohmann::json object = of_body(bytes);
        CHECK(object.at("encoding") == "base64");
        CHECK(object.at("body") == text);
    }
    CHECK(of_body("").at("body") == "");
}

TEST_CASE("a long body is cut, and says so") {
    CHECK(of_body(std::string(kMaxWrapped, 'a')).at("cut") == false);
    const nlohmann::json object = of_body(std::string(kMaxWrapped + 1, 'a'));
    CHECK(object.at("cut") == true);
    CHECK(object.at("body").get<std::string>().size() == kMaxWrapped);
    CHECK(object.at("body_bytes") == kMaxWrapped + 1);
    // Not within a character.
    const nlohmann::json text = of_body(std::string(kMaxWrapped - 1, 'a') + "\xc3\xa9" + "b");
    CHECK(text.at("encoding") == "text");
    CHECK(text.at("body").get<std::string>() == std::string(kMaxWrapped - 1, 'a'));
    CHECK(of_body(std::string(kMaxWrapped + 5, '\xff')).at("encoding") == "base64");
}

TEST_CASE("the headers that browsers send, and pages cannot leave out, are known") {
    Request request;
    request.headers = {{"Accept", "text/html"}, {"User-Agent", "curl"}};
    CHECK_FALSE(from_browser(request));
    for (const char* const name : {"origin", "Sec-Fetch-Site", "Sec-Fetch-Dest", "sec-fetch-mode"}) {
        request.headers = {{name, "null"}};
        CHECK(from_browser(request));
    }
}
