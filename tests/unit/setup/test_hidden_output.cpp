// Output that is counted, and of which only the end is kept.
#include "src/setup/hidden_output.hpp"

#include <string>

#include "tests/catch.hpp"

using kvmserver::HiddenOutput;

TEST_CASE("lines are counted whichever way they come in pieces, of each stream by itself") {
    HiddenOutput output("app");
    CHECK(output.lines() == 0);
    CHECK(output.last_lines().empty());
    output.add(1, "GET");
    output.add(2, "warn");
    CHECK(output.lines() == 2); // incomplete ones count
    output.add(1, " /\nGET /b\n");
    CHECK(output.lines() == 3);
    output.add(2, "ing\n\n");
    CHECK(output.lines() == 4);
    CHECK(output.last_lines() == "GET /\nGET /b\nwarning\n\n");
}

TEST_CASE("the last lines are kept, an incomplete one too, and of a long one the beginning") {
    HiddenOutput output("app");
    for (int i = 1; i <= 1000; ++i)
        output.add(1, std::to_string(i) + "\n");
    output.add(1, "end");
    CHECK(output.lines() == 1001);
    CHECK(output.last_lines().starts_with("982\n983\n"));
    CHECK(output.last_lines().ends_with("1000\nend\n"));

    HiddenOutput other("app");
    for (int i = 0; i < 3000; ++i)
        other.add(2, "abc");
    other.add(2, "\nnext\n");
    CHECK(other.lines() == 2);
    CHECK(other.last_lines().size() == HiddenOutput::kKeptOfLine + 1 + 5);
}
