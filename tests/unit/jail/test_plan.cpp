#include "src/jail/plan.hpp"
#include "tests/catch.hpp"

using namespace kvmserver::jail;

TEST_CASE("a plan is the same after its text") {
    Plan plan;
    plan.mode = Mode::strict;
    plan.network = plan.connect = plan.own_network = true;
    add_place(plan, "/srv/with a\nline", false);
    add_place(plan, "/srv/data", true);
    plan.folders = {"/home/app"};
    plan.hidden = {"/var/lib/kvmserver"};
    plan.bounds = {{{"/srv/data", false}, {"/run", true}}, {}};
    CHECK(plan_from(to_text(plan)) == plan);
}

TEST_CASE("of two rights to one place the greater counts") {
    Plan plan;
    add_place(plan, "/srv", false);
    add_place(plan, "/srv", true);
    add_place(plan, "/srv", false);
    CHECK(plan.places == std::vector<Place>{{"/srv", true}});
}

TEST_CASE("what is no plan is none") {
    const auto of = [](std::string_view text) { return plan_from(text).has_value(); };
    using namespace std::string_view_literals;
    CHECK(of("jauto\0"sv));
    CHECK_FALSE(of(""sv));              // it must say how
    CHECK_FALSE(of("jnone\0"sv));       // no such mode
    CHECK_FALSE(of("jauto"sv));         // cut off
    CHECK_FALSE(of("jauto\0\0"sv));     // an empty item
    CHECK_FALSE(of("jauto\0rsrv\0"sv)); // not absolute
    CHECK_FALSE(of("jauto\0r\0"sv));
    CHECK_FALSE(of("jauto\0x/srv\0"sv)); // of no kind
    CHECK_FALSE(of("jauto\0nyes\0"sv));
    CHECK_FALSE(of("jauto\0R/srv\0"sv)); // of no bound
    CHECK_FALSE(of("jauto\0b\0Rsrv\0"sv));
    CHECK_FALSE(of(std::string("jauto\0r/"sv) + std::string(5000, 'a') + std::string(1, '\0')));
    std::string many = "jauto" + std::string(1, '\0');
    for (int i = 0; i <= 10'000; ++i)
        many += "r/" + std::to_string(i) + std::string(1, '\0');
    CHECK_FALSE(of(many));
}

TEST_CASE("modes by name") {
    for (const Mode mode : {Mode::off, Mode::automatic, Mode::strict})
        CHECK(mode_of(text_of(mode)) == mode);
    CHECK_FALSE(mode_of("on"));
}

TEST_CASE("missing walls in words") {
    CHECK(text_of(std::vector<Missing>{}) == "");
    CHECK(text_of(std::vector<Missing>{{Wall::landlock, "not in this kernel"}, {Wall::network, "unshare: no"}}) ==
          "landlock (not in this kernel), network (unshare: no)");
}
