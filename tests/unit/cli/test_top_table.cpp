// What top shows in which window.
#include "src/cli/platform/top_table.hpp"
#include "tests/catch.hpp"

using namespace kvmserver::cli::platform;

namespace {

TopRow row(const std::string& name, double requests, double errors = 0, const std::string& state = "ready") {
    TopRow out;
    out.function = name;
    out.version = 1;
    out.state = state;
    out.requests_per_second = requests;
    out.errors_per_second = errors;
    out.requests = static_cast<std::uint64_t>(requests);
    return out;
}

std::string names(std::vector<TopRow> rows, TopColumn by) {
    sort_rows(rows, by);
    std::string out;
    for (const TopRow& one : rows)
        out += one.function;
    return out;
}

} // namespace

TEST_CASE("what matters most is on top") {
    const std::vector<TopRow> rows{row("a", 1), row("b", 900), row("c", 5, 0.5), row("d", 2, 3),
                                   row("e", 0, 0, "failing")};
    CHECK(names(rows, TopColumn::errors) == "edcba");
    CHECK(names(rows, TopColumn::requests_per_second) == "bcdae");
    CHECK(names(rows, TopColumn::function) == "abcde");
    CHECK(names(rows, TopColumn::state) == "eabcd");
}

TEST_CASE("the columns are a ring") {
    CHECK(next_column(TopColumn::errors, 1) == TopColumn::mean);
    CHECK(next_column(TopColumn::memory, 1) == TopColumn::function);
    CHECK(next_column(TopColumn::function, -1) == TopColumn::memory);
}

TEST_CASE("as many lines and columns as the window has") {
    std::vector<TopRow> rows;
    for (const char name : {'a', 'b', 'c', 'd', 'e'})
        rows.push_back(row(std::string(1, name), 10));
    rows.front().errors_per_second = 2;
    const auto lines = top_screen(rows, TopColumn::queued, {40, 6}, false);
    REQUIRE(lines.size() == 6);
    CHECK(lines[0] == "5 functions, 1 failing, 50.0 requests/s,");
    CHECK(lines[2].starts_with("a "));
    CHECK(lines[4].starts_with("c "));
    CHECK(lines[5].starts_with("2 more "));
    for (const std::string& line : lines)
        CHECK(line.size() <= 40);
    const auto wide = top_screen(rows, TopColumn::queued, {200, 50}, true);
    REQUIRE(wide.size() == 8);
    CHECK(wide[1].find("QUEUED*") != std::string::npos);
    CHECK(wide[2].starts_with("\33[31ma ")); // failing
    CHECK(wide[3].starts_with("b "));
    CHECK(wide[7].find("more") == std::string::npos);
    CHECK(top_screen(rows, TopColumn::queued, {1, 1}, true).size() == 1);
}
