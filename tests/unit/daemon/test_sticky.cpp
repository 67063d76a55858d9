#include <array>
#include <map>

#include "src/daemon/sticky.hpp"
#include "tests/catch.hpp"

using namespace kvmserver;
using namespace kvmserver::daemon;

namespace {

std::shared_ptr<FunctionVersion> version(std::uint64_t number, unsigned machines, const Sticky& sticky) {
    FunctionVersion::Facts facts;
    facts.function = "f";
    facts.version = number;
    facts.kept = true;
    facts.machines = machines;
    Given given;
    given.sticky = sticky;
    facts.given = SharedGiven(given);
    FunctionVersion::Others others;
    for (unsigned machine = 2; machine <= machines; ++machine) {
        FunctionVersion::Facts other = facts;
        other.machine = machine;
        others.push_back(std::make_shared<FunctionVersion>(std::move(other)));
    }
    return std::make_shared<FunctionVersion>(std::move(facts), nullptr, std::move(others));
}

std::vector<http::Field> with(std::string_view name, std::string_view value) { return {{"", name, value}}; }

std::pair<std::uint64_t, unsigned> place(const Choice& choice) {
    REQUIRE(choice.machine);
    return {choice.machine->facts().version, choice.machine->facts().machine};
}

} // namespace

TEST_CASE("a cookie names one of the version's machines, or none") {
    const auto four = version(12, 4, {"", "sid"});
    const auto of = [&](std::string_view cookies) {
        return machine_of_cookie(with("cookie", cookies), "sid", four->facts());
    };
    CHECK(of("sid=12-3") == 3);
    CHECK(of("a=b; sid=12-4 ;c=d") == 4);
    CHECK(of("sid=11-1; sid=12-2") == 2);
    for (const char* none : {"", ";", "=", "sid", "sid=", "sid=12-0", "sid=12-5", "sid=12-", "sid=12-03", "sid=1-23",
                             "sid=12-3x", "xsid=12-3", "Sid=12-3", "sid =12-3", "sid=\"12-3\"", "a=sid=12-3", ";;;;"})
        CHECK(of(none) == 0);
    CHECK(machine_of_cookie(with("X-Cookie", "sid=12-3"), "sid", four->facts()) == 0);
}

TEST_CASE("equal values of a header reach one machine, and all machines are used alike") {
    const auto four = version(1, 4, {"X-Tenant", ""});
    std::array<unsigned, 5> used{};
    for (int i = 0; i < 4000; ++i) {
        const std::string tenant = "tenant-" + std::to_string(i);
        const auto fields = with("x-tenant", tenant);
        const auto first = place(choose_machine(four, {fields, "/"}));
        CHECK(place(choose_machine(four, {fields, "/"})) == first);
        ++used[first.second];
    }
    for (unsigned machine = 1; machine <= 4; ++machine)
        CHECK((used[machine] > 850 && used[machine] < 1150));
    CHECK(place(choose_machine(four, {with("x-tenant", ""), "/"})).second == 1);
    CHECK(place(choose_machine(four, {{}, "/"})).second == 1);
}

TEST_CASE("of two live versions a session keeps to one") {
    const Sticky by_header{"X-Tenant", ""}, by_cookie{"", "sid"};
    const auto both = [](const Sticky& sticky) {
        return Destination{"f", 1, {{version(1, 3, sticky), 25}, {version(2, 3, sticky), 75}}, {}};
    };
    const Destination headers = both(by_header);
    std::map<std::uint64_t, unsigned> used;
    for (int i = 0; i < 4000; ++i) {
        const std::string tenant = "tenant-" + std::to_string(i);
        const auto fields = with("X-Tenant", tenant);
        const auto first = place(choose(headers, {fields, "/"}));
        CHECK(place(choose(headers, {fields, "/"})) == first);
        ++used[first.first];
    }
    CHECK((used[1] > 850 && used[1] < 1150));
    const Destination cookies = both(by_cookie);
    for (int i = 0; i < 200; ++i) {
        const Choice begun = choose(cookies, {{}, "/shop"});
        const auto equals = begun.set_cookie.find('='), end = begun.set_cookie.find(';');
        const std::string back = "sid=" + begun.set_cookie.substr(equals + 1, end - equals - 1);
        const Choice again = choose(cookies, {with("Cookie", back), "/shop"});
        CHECK(place(again) == place(begun));
        CHECK(again.set_cookie.empty());
    }
}

TEST_CASE("a cookie is for the route's path, and over TLS for TLS only") {
    const auto two = version(7, 2, {"", "sid"});
    CHECK(choose_machine(two, {{}, "/shop", true}).set_cookie ==
          "Set-Cookie: sid=7-1; Path=/shop; HttpOnly; SameSite=Lax; Secure\r\n");
    CHECK(choose_machine(two, {{}, "/a;b"}).set_cookie == "Set-Cookie: sid=7-2; Path=/; HttpOnly; SameSite=Lax\r\n");
}

TEST_CASE("where no version has several machines, nothing is added") {
    const Destination one{"f", 1, {{version(1, 1, {}), 100}}, {}};
    const Choice choice = choose(one, {with("Cookie", "kvmserver-machine=1-1"), "/"});
    CHECK(place(choice) == std::pair<std::uint64_t, unsigned>{1, 1});
    CHECK(choice.set_cookie.empty());
    CHECK_FALSE(choose(Destination{"f", 1, {}, {}}, {{}, "/"}).machine);
    CHECK_FALSE(choose(Destination{"f", 1, {{nullptr, 100}}, {}}, {{}, "/"}).machine);
}
