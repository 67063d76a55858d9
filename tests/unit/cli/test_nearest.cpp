#include "src/cli/help/nearest.hpp"
#include "src/cli/options/option_table.hpp"
#include "tests/catch.hpp"

#include <set>

using namespace kvmserver::cli;

TEST_CASE("nearest finds slips of the fingers and nothing else") {
    const std::vector<std::string> known{"run", "snapshot", "snaprun", "allow-read", "allow-write", "verbose-syscalls"};
    const auto found = [&](const char* word) { return nearest(word, known).value_or("-"); };
    CHECK(found("rnu") == "run");
    CHECK(found("runn") == "run");
    CHECK(found("snapsho") == "snapshot");
    CHECK(found("snaprum") == "snaprun");
    CHECK(found("alow-raed") == "allow-read");
    CHECK(found("allow_write") == "allow-write");
    CHECK(found("verb") == "verbose-syscalls");
    CHECK(found("deploy") == "-");
    CHECK(found("") == "-");
    CHECK(found("x") == "-");
    CHECK(found(std::string(100000, 'a').c_str()) == "-");
    CHECK(did_you_mean("rnu", known, "kvmserver ") == "; did you mean kvmserver run?");
}

TEST_CASE("the option table is consistent") {
    std::set<std::string_view> names;
    std::set<char> letters;
    for (const OptionSpec& spec : machine_options()) {
        CAPTURE(std::string(spec.name));
        CHECK(names.insert(spec.name).second);
        if (spec.letter)
            CHECK(letters.insert(spec.letter).second);
        CHECK(spec.value.empty() == (spec.kind == Kind::flag));
        CHECK(spec.bare.empty() == (spec.kind != Kind::optional_list));
        CHECK((spec.offered & ~(kAll | kDebug)) == 0);
    }
}
