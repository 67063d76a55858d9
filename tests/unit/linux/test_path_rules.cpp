#include "tests/catch.hpp"
#include "tinykvm/base/path_text.hpp"
#include "tinykvm/linux/path_rules.hpp"

using namespace tinykvm;

TEST_CASE("paths are cut into components") {
    const PathText text = cut_path("//a/./b//../c");
    CHECK(text.absolute);
    CHECK(text.dots);
    CHECK_FALSE(text.must_be_directory);
    CHECK(text.parts == std::vector<std::string>{"a", "b", "..", "c"});
    CHECK(cut_path("a/").must_be_directory);
    CHECK(cut_path("a/.").ends_in_dot);
    CHECK(cut_path("a/..").ends_in_dotdot);
    CHECK(cut_path("a/..b").parts.back() == "..b");
    CHECK_FALSE(cut_path("a/..b").dots);
    CHECK(cut_path("").parts.empty());
    CHECK(join_parts(cut_path("///").parts) == "/");
    CHECK(join_path("/", "a") == "/a");
    CHECK(join_path("/x", "a") == "/x/a");
    CHECK(join_path("/x", "/a") == "/a");
    CHECK(split_last("/a") == std::pair<std::string, std::string>("/", "a"));
    CHECK(split_last("/") == std::pair<std::string, std::string>("/", ""));
}

TEST_CASE("a folder is not a prefix of its neighbour") {
    CHECK(is_beneath("/ab", "/ab"));
    CHECK(is_beneath("/ab/c", "/ab"));
    CHECK_FALSE(is_beneath("/abc", "/ab"));
    CHECK(is_beneath("/", "/"));
    CHECK(is_beneath("/x", "/"));
    CHECK_FALSE(is_beneath("/", "/x"));
}

TEST_CASE("rules reach down, lookups lead up") {
    PathRules rules;
    rules.add("/srv/www", kReadRule);
    CHECK(rules.of("/srv/www") == kReadRule);
    CHECK(rules.of("/srv/www/a/b") == kReadRule);
    CHECK(rules.of("/srv/www2") == 0);
    CHECK(rules.of("/srv/ww") == 0);
    CHECK(rules.of("/srv") == kLookup);
    CHECK(rules.of("/") == kLookup);
    CHECK(rules.of("/srv/other") == 0);
    rules.add("/srv/www/data", kWriteRule);
    CHECK(rules.of("/srv/www/data/x") == kWriteRule);
    CHECK(rules.of("/srv/www/index") == kReadRule);
    rules.add_lookup("/etc/alternatives/link");
    CHECK(rules.of("/etc/alternatives/link") == kLookup);
    CHECK(rules.of("/etc/alternatives/link/x") == 0);
}

TEST_CASE("a rule for everything") {
    PathRules rules;
    rules.add("/", kReadRule);
    CHECK(rules.of("/") == kReadRule);
    CHECK(rules.of("/any/thing") == kReadRule);
}

TEST_CASE("a shorter rule does not reach into a volume, a longer one does") {
    PathRules rules;
    rules.add("/", kWriteRule);
    rules.add_volume("/data", kLookup | kRead);
    CHECK(rules.of("/data/x") == (kLookup | kRead));
    rules.add("/data/tmp", kWriteRule);
    CHECK((rules.of("/data/tmp/x") & kWrite));
    CHECK(rules.of("/data2") == kWriteRule);
}
