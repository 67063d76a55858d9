#include "src/event_loop/refusals.hpp"
#include "tests/catch.hpp"

using kvmserver::Refusals;

TEST_CASE("what was refused is told once, as flags and as lines of a manifest") {
    Refusals refusals;
    CHECK(refusals.advice().empty());
    refusals.add("--allow-read=/etc would allow it");
    refusals.add("--allow-read=/etc would allow it");
    refusals.add("--allow-write=/out would allow it");
    refusals.add("--allow-listen=127.0.0.1:80 would allow it");
    refusals.add("a line of another kind");
    CHECK(refusals.advice() ==
          std::vector<std::string>{
              "it lacked permissions; this would allow what was refused: --allow-listen=127.0.0.1:80 "
              "--allow-read=/etc --allow-write=/out",
              "or as lines at the top of kvmserver.toml:", "allow-listen = [\"127.0.0.1:80\"]",
              "allow-read = [\"/etc\"]", "allow-write = [\"/out\"]"});
}

TEST_CASE("files that are not there, and those that may be written anyway, are left out") {
    Refusals refusals;
    refusals.set_exists([](const std::string& path) { return path == "/etc"; });
    refusals.add("--allow-read=/not-there would allow it");
    CHECK(refusals.advice().empty());
    refusals.add("--allow-read=/etc would allow it");
    refusals.add("--allow-write=/etc would allow it");
    CHECK(refusals.advice().back() == "allow-write = [\"/etc\"]");
    CHECK(refusals.advice().size() == 3);
}

TEST_CASE("a path that looks like a flag, and one that a shell would read otherwise") {
    Refusals refusals;
    refusals.add("--allow-read=/x; --allow-write=/ would allow it");
    refusals.add("--allow-write=/a b'c\"d would allow it");
    CHECK(refusals.advice().front().ends_with("'--allow-write=/a b'\\''c\"d'"));
    CHECK(refusals.advice().back() == "allow-write = [\"/a b'c\\\"d\"]");
}

TEST_CASE("a program that asks for ever does not fill the memory nor the log") {
    Refusals refusals;
    for (int i = 0; i < 10'000; ++i)
        refusals.add("--allow-write=/x" + std::to_string(i) + " would allow it");
    CHECK(refusals.advice().back().ends_with("# and 470 more"));
}

TEST_CASE("no permission is advised where another program was to be started, which none allows") {
    Refusals refusals;
    refusals.add("--allow-read=/root/.pyenv/libexec/pyenv would allow it");
    refusals.none_would_help();
    CHECK(refusals.advice().empty());
}
