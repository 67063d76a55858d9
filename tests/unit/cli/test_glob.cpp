// Which files `dev --watch` follows.
#include "src/cli/dev/glob.hpp"
#include "src/cli/init/init.hpp"
#include "tests/catch.hpp"

using kvmserver::cli::dev::Glob;

namespace {
bool matches(const char* pattern, const char* file) { return Glob("/no/app", pattern).matches(file); }
} // namespace

TEST_CASE("globs of [function.build] watch") {
    CHECK(matches("*.c", "/no/app/a.c"));
    CHECK_FALSE(matches("*.c", "/no/app/a.h"));
    CHECK_FALSE(matches("*.c", "/no/app/sub/a.c"));
    CHECK(matches("**/*.c", "/no/app/a.c"));
    CHECK(matches("**/*.c", "/no/app/x/y/a.c"));
    CHECK(matches("src/**", "/no/app/src/x/y"));
    CHECK_FALSE(matches("src/**", "/no/app/srcs/x"));
    CHECK(matches("src/*/main.[ch]", "/no/app/src/x/main.h"));
    CHECK(matches("./a/../b.txt", "/no/app/b.txt"));
    CHECK(matches("../lib/**", "/no/lib/deep/x"));
    CHECK_FALSE(matches("../lib/**", "/no/app/x"));
    CHECK(matches("/etc/*.conf", "/etc/a.conf"));
    CHECK(Glob("/no/app", "src/js/**/*.js").root() == "/no/app/src/js");
    CHECK(Glob("/", "etc").matches("/etc/passwd")); // a folder that is there means all of it
}

TEST_CASE("a function's name made of a folder's") {
    using kvmserver::cli::init::valid_name;
    CHECK(valid_name("hello") == "hello");
    CHECK(valid_name("My Shop_2") == "my-shop-2");
    CHECK(valid_name("--x--") == "x");
    CHECK(valid_name("\xc3\xbc") == "function");
    CHECK(valid_name("") == "function");
    CHECK(valid_name(std::string(80, 'a')).size() == 63);
    CHECK(valid_name(std::string(62, 'a') + " b") == std::string(62, 'a'));
}
