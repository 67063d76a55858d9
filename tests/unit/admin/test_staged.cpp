// Snapshots that were brought and that nothing names yet.
#include "tests/catch.hpp"
#include "tests/unit/admin/world.hpp"

using namespace kvmserver;
using namespace kvmserver::admin::test;

namespace {

Digest bring(World& world) {
    store::SnapshotHold hold = store::test::import(world.store, store::test::sample_pieces(1));
    const Digest digest = hold.digest();
    world.api.staged().add(std::move(hold), 7);
    return digest;
}

} // namespace

TEST_CASE("gc leaves a snapshot that was brought just now") {
    World world;
    const Digest digest = bring(world);
    CHECK(world.api.staged().all_of(7) == std::vector{digest});
    CHECK(world.api.staged().all_of(8).empty());
    CHECK(world.ask("POST", "/v1/gc").json()["snapshots"] == 0);
}

TEST_CASE("gc frees what was brought and not deployed in time") {
    World world({.staged_for = std::chrono::milliseconds(0)});
    bring(world);
    CHECK(world.api.staged().all_of(7).empty());
    const nlohmann::json freed = world.ask("POST", "/v1/gc").json(); // nobody brings another one before
    CHECK(freed["snapshots"] == 1);
    CHECK(freed["bytes"] > 0);
}
