// Which versions may go live, and which one a rollback takes.
#include <cstdint>
#include <string>
#include <vector>

#include "src/ops/deploy.hpp"
#include "src/store/errors.hpp"
#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"

using namespace kvmserver;
using store::Live;
using store::VersionInfo;
using store::VersionState;

namespace {

VersionInfo version(std::uint64_t number, unsigned percent = 0, VersionState state = VersionState::ready) {
    VersionInfo info;
    info.number = number;
    info.percent = percent;
    info.state = state;
    return info;
}

} // namespace

TEST_CASE("what is live is told by version, whatever the order of the list") {
    const std::vector<VersionInfo> all{version(4, 10), version(3), version(2, 60), version(1, 30)};
    CHECK(ops::live_of(all) == std::vector<Live>{{1, 30}, {2, 60}, {4, 10}});
    CHECK(ops::live_of({version(1)}).empty());
}

TEST_CASE("only versions that are there and ready may go live") {
    const std::vector<VersionInfo> all{version(3, 0, VersionState::failed), version(2, 0, VersionState::pending),
                                       version(1, 100)};
    CHECK_NOTHROW(ops::check_traffic_of("a", all, {{1, 100}}));
    CHECK_NOTHROW(ops::check_traffic_of("a", all, {}));
    CHECK_THROWS_AS(ops::check_traffic_of("a", all, {{1, 50}, {9, 50}}), store::NotFound);
    CHECK_THROWS_AS(ops::check_traffic_of("a", all, {{2, 100}}), store::Conflict);
    try {
        ops::check_traffic_of("a", all, {{3, 100}});
        FAIL("a failed one");
    } catch (const store::Conflict& error) {
        CHECK(std::string(error.what()) == "a v3 is failed, not ready: it cannot go live");
    }
}

TEST_CASE("shares of the requests that are not 100 percent in all are refused") {
    const std::vector<VersionInfo> all{version(2), version(1, 100)};
    CHECK_THROWS_AS(ops::check_traffic_of("a", all, {{1, 50}}), store::BadValue);
    CHECK_THROWS_AS(ops::check_traffic_of("a", all, {{1, 60}, {2, 50}}), store::BadValue);
}

TEST_CASE("a rollback takes the newest ready version before the one that gets most") {
    CHECK(ops::rollback_target("a", {version(3, 100), version(2), version(1)}) == 2);
    CHECK(ops::rollback_target("a", {version(4, 100), version(3, 0, VersionState::failed), version(2), version(1)}) ==
          2);
    // A trial of the newest does not count: what is rolled back is what most requests get.
    CHECK(ops::rollback_target("a", {version(4, 10), version(3, 90), version(2), version(1)}) == 2);
    CHECK(ops::rollback_target("a", {version(3, 50), version(2, 50), version(1)}) == 2); // the newer one of two alike
}

TEST_CASE("a rollback with nothing to go back to says so") {
    CHECK_THROWS_AS(ops::rollback_target("a", {version(1, 100)}), store::NotFound);
    CHECK_THROWS_AS(ops::rollback_target("a", {version(2), version(1)}), store::NotFound); // nothing is live
    CHECK_THROWS_AS(ops::rollback_target("a", {version(2, 100), version(1, 0, VersionState::pending)}),
                    store::NotFound);
}

TEST_CASE("a rollback does what was told of it before") {
    const store::test::TempFolder folder;
    store::Store store(folder / "store");
    store::Functions functions(store);
    for (unsigned seed = 1; seed <= 4; ++seed)
        store::test::deploy(store, "a", seed);
    for (const std::vector<Live>& live :
         {std::vector<Live>{{4, 100}}, {{3, 60}, {4, 40}}, {{2, 50}, {3, 50}}, {{3, 50}, {4, 50}}, {{2, 100}}}) {
        functions.set_traffic("a", live);
        const std::uint64_t told = ops::rollback_target("a", functions.versions("a"));
        CHECK(functions.rollback("a").live == std::vector<Live>{{told, 100}});
    }
}
