// Which requests of clients are for the after-restore hook.
#include "src/daemon/hook_request.hpp"

#include "tests/catch.hpp"

using kvmserver::daemon::is_hook_request;

TEST_CASE("a POST to the hook's path is the hook's, however that is written in a target") {
    CHECK(is_hook_request("POST", "/restored", "/restored"));
    CHECK(is_hook_request("POST", "/restored?a=/b", "/restored"));
    CHECK(is_hook_request("POST", "/%72estore%64", "/restored"));
    CHECK(is_hook_request("POST", "/a%2Fb", "/a/b"));
    CHECK(is_hook_request("POST", "/restored", "/%72estored?x"));
}

TEST_CASE("other methods and paths, and functions without a hook, are left alone") {
    CHECK_FALSE(is_hook_request("GET", "/restored", "/restored"));
    CHECK_FALSE(is_hook_request("POST", "/restored/", "/restored"));
    CHECK_FALSE(is_hook_request("POST", "/", "/restored"));
    CHECK_FALSE(is_hook_request("POST", "/restored", ""));
    CHECK_FALSE(is_hook_request("POST", "", ""));
    for (const char* path : {"/restored%", "/restored%6", "/restored%zz", "/restored%+1", "/restored%2"}) {
        CAPTURE(path);
        CHECK_FALSE(is_hook_request("POST", path, "/restored"));
    }
}
