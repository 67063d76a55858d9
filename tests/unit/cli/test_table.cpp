// Tables, and times as people say them.
#include "src/cli/platform/table.hpp"
#include "tests/catch.hpp"

#include <sstream>

using namespace kvmserver::cli;
using namespace kvmserver::cli::platform;

namespace {

std::string printed(const Table& table, bool header = true) {
    std::ostringstream out, err;
    Context context{.out = out, .err = err, .folder = "/"};
    Invocation invocation;
    if (!header)
        invocation.settings["no-header"] = {{"true"}, ""};
    table.print(invocation, context);
    return out.str();
}

} // namespace

TEST_CASE("columns are as wide as their widest cell") {
    Table table({"NAME", "STATE", "URL"});
    CHECK(printed(table) == "");
    table.add({"a", "ready", "http://a"});
    table.add({"größer", "", ""});
    CHECK(printed(table) == "NAME    STATE  URL\n"
                            "a       ready  http://a\n"
                            "größer  -      -\n");
    CHECK(printed(table, false) == "a       ready  http://a\n"
                                   "größer  -      -\n");
}

TEST_CASE("how long ago something was") {
    const std::int64_t now = 1'795'521'600'000; // 2026-11-24T12:00:00Z
    CHECK(ago(now, now) == "0 s ago");
    CHECK(ago(now + 5000, now) == "0 s ago"); // of a clock that is ahead
    CHECK(ago(now - 59'999, now) == "59 s ago");
    CHECK(ago(now - 60'000, now) == "1 min ago");
    CHECK(ago(now - 3'600'000, now) == "1 h ago");
    CHECK(ago(now - 86'400'000, now) == "1 day ago");
    CHECK(ago(now - 3 * 86'400'000LL, now) == "3 days ago");
    CHECK(ago(now - 40 * 86'400'000LL, now) == "2026-10-15");
    CHECK(ago("?") == "?"); // of a clock that is far off
    CHECK(until("2026-01-01T00:00:00Z") == "expired");
    CHECK(until("2999-01-01T00:00:00Z") == "on 2999-01-01");
}
