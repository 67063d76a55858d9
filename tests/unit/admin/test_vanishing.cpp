// Functions that are deleted while somebody asks about others.
#include "tests/catch.hpp"
#include "tests/unit/admin/world.hpp"

#include <thread>

using namespace kvmserver;
using namespace kvmserver::admin::test;

TEST_CASE("a function that is deleted meanwhile is no matter of requests about others") {
    World world;
    store::test::deploy(world.store, "mine-a", 1);
    const std::string token = store::Tokens(world.store).create("mine", store::kScopeDeploy, "mine-", {});
    const std::string mine =
        "/v1/snapshots/sha256:" + store::Functions(world.store).versions("mine-a").front().snapshot.hex();
    const Digest theirs = [&] {
        store::test::deploy(world.store, "mine-b", 2);
        return store::Functions(world.store).versions("mine-b").front().snapshot;
    }();
    const std::jthread other([&](const std::stop_token& over) { // in a store of its own, as another process
        store::Store store(world.folder / "store");
        store::Functions functions(store);
        const auto hold = store::SnapshotHold::take(store, theirs);
        while (!over.stop_requested()) {
            functions.remove("mine-b");
            functions.deploy({.function = "mine-b", .snapshot = theirs, .routes = {}, .env = {}, .if_match = {}});
        }
    });
    for (int i = 0; i < 400; ++i) {
        const Reply listed = world.ask("GET", "/v1/snapshots");
        INFO(listed.body);
        REQUIRE(listed.status == 200);
        const Reply named = world.ask("HEAD", mine, "", {}, token);
        INFO(named.body);
        REQUIRE(named.status == 200);
    }
}
