#include "tests/catch.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/linux/permissions.hpp"

using namespace tinykvm;

namespace {

std::string net_error(const std::string& text) {
    try {
        parse_net_rule("--allow-listen", text);
    } catch (const UserError& e) {
        CHECK(e.code() == ExitCode::usage);
        return e.what();
    }
    return "";
}

std::string volume_error(const std::string& text) {
    try {
        parse_volume(text);
    } catch (const UserError& e) {
        CHECK(e.code() == ExitCode::usage);
        return e.what();
    }
    return "";
}

} // namespace

TEST_CASE("network rules are parsed") {
    const auto rule = [](const std::string& text) { return parse_net_rule("--allow-connect", text); };
    CHECK(rule(":8080") == NetRule{"", 8080});
    CHECK(rule("localhost") == NetRule{"localhost", 0});
    CHECK(rule("localhost:80") == NetRule{"localhost", 80});
    CHECK(rule("10.0.0.1:443") == NetRule{"10.0.0.1", 443});
    CHECK(rule("10.0.0.1") == NetRule{"10.0.0.1", 0});
    CHECK(rule("[::1]:80") == NetRule{"::1", 80});
    CHECK(rule("[::1]") == NetRule{"::1", 0});
    CHECK(rule("::1") == NetRule{"::1", 0});
    CHECK(rule("db-1.internal_x.example:5432") == NetRule{"db-1.internal_x.example", 5432});
    CHECK(rule(":0") == NetRule{"", 0});
}

TEST_CASE("a bare port is refused with the form that was meant") {
    CHECK(net_error("8080").find("did you mean :8080?") != std::string::npos);
    CHECK(net_error("8080").find("--allow-listen=8080") == 0);
}

TEST_CASE("network rules that mean nothing are refused") {
    const std::string text =
        GENERATE(as<std::string>{}, "", ":", "a:", ":65536", ":-1", ":8o", ":000080", "1.2.3", "1.2.3.4.5",
                 "256.1.1.1:80", "[::1", "[::1]80", "[::1]:", "[1.2.3.4]:80", "::1:80:90:zz", "http://x", "*", "*:80",
                 "a b:80", "a/b", "[]:80", "fe80::1%eth0");
    CAPTURE(text);
    CHECK_FALSE(net_error(text).empty());
}

TEST_CASE("volumes are parsed, readable only by default") {
    const Volume plain = parse_volume("/srv/www:/www");
    CHECK((plain.host == "/srv/www" && plain.guest == "/www"));
    CHECK((plain.read && !plain.write && !plain.execute));
    const Volume full = parse_volume("/a/:/b/c/:rwx");
    CHECK(full.guest == "/b/c");
    CHECK((full.read && full.write && full.execute));
    CHECK(parse_volume("/a:/b:w").read); // writing implies reading
    CHECK_FALSE(parse_volume("/a:/b:x").read);
    CHECK(parse_volume("data:/b").host.front() == '/');
}

TEST_CASE("volumes that mean nothing are refused") {
    const std::string text = GENERATE(as<std::string>{}, "", "/a", ":/b", "/a:", "/a:b", "/a:/b:", "/a:/b:q",
                                      "/a:/b:rr", "/a:/b:rw:x", "/a:/b/../c", "/a:/proc", "/a:/proc/self");
    CAPTURE(text);
    CHECK_FALSE(volume_error(text).empty());
}

TEST_CASE("environment names match exactly or by prefix") {
    Permissions permissions;
    CHECK_FALSE(env_allowed(permissions, "HOME"));
    permissions.env = {"HOME", "APP_*"};
    CHECK(env_allowed(permissions, "HOME"));
    CHECK_FALSE(env_allowed(permissions, "HOME2"));
    CHECK(env_allowed(permissions, "APP_KEY"));
    CHECK(env_allowed(permissions, "APP_"));
    CHECK_FALSE(env_allowed(permissions, "APP"));
    permissions.env = {"*"};
    CHECK(env_allowed(permissions, "anything"));
    permissions.env.clear();
    permissions.all = true;
    CHECK(env_allowed(permissions, "anything"));
}
