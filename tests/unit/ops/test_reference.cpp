// Snapshots by the names that people give them.
#include "src/ops/reference.hpp"

#include <functional>
#include <string>

#include "src/store/errors.hpp"
#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"

using namespace kvmserver;
using ops::find_snapshot;

namespace {

class ReferenceWorld {
public:
    ReferenceWorld() {
        for (unsigned seed = 1; seed <= 3; ++seed)
            store::test::deploy(store, "hello", seed);
    }
    Digest version(std::uint64_t number) { return functions.version("hello", number).snapshot; }

    store::test::TempFolder folder;
    store::Store store{folder / "store"};
    store::Functions functions{store};
};

} // namespace

TEST_CASE("a version is named NAME@3 or NAME@v3") {
    ReferenceWorld world;
    CHECK(find_snapshot(world.store, "hello@1") == world.version(1));
    CHECK(find_snapshot(world.store, "hello@v2") == world.version(2));
    CHECK_THROWS_AS(find_snapshot(world.store, "hello@9"), store::NotFound);
    CHECK_THROWS_AS(find_snapshot(world.store, "other@1"), store::NotFound);
    for (const char* bad : {"hello@", "hello@v", "hello@x", "hello@-1", "hello@1x", "hello@99999999999999999999",
                            "hello@9223372036854775808"}) {
        CAPTURE(bad);
        CHECK_THROWS_AS(find_snapshot(world.store, bad), store::BadValue);
    }
}

TEST_CASE("a function's name alone is its version that gets most requests") {
    ReferenceWorld world;
    CHECK(find_snapshot(world.store, "hello") == world.version(3));
    world.functions.set_traffic("hello", {{1, 20}, {2, 70}, {3, 10}});
    CHECK(find_snapshot(world.store, "hello") == world.version(2));
    world.functions.set_traffic("hello", {});
    try {
        find_snapshot(world.store, "hello");
        FAIL("nothing is live");
    } catch (const store::NotFound& error) {
        CHECK(std::string(error.what()).find("hello@1") != std::string::npos); // what to write instead
    }
    CHECK_THROWS_AS(find_snapshot(world.store, "other"), store::NotFound);
}

TEST_CASE("the beginning of a digest is enough where only one snapshot has it") {
    ReferenceWorld world;
    const Digest first = world.version(1);
    const std::string hex = first.hex();
    CHECK(find_snapshot(world.store, "sha256:" + hex) == first);
    CHECK(find_snapshot(world.store, "sha256:" + hex.substr(0, 12)) == first);

    std::string twin = hex; // another that differs in its last digit only
    twin.back() = twin.back() == '0' ? '1' : '0';
    const std::string record = store::test::files_below(world.folder / "store/snapshots").at(0).extension();
    store::test::write_text(world.folder.path() / "store/snapshots" / (twin + record), "");
    CHECK_THROWS_AS(find_snapshot(world.store, "sha256:" + hex.substr(0, 12)), store::Conflict);
    CHECK(find_snapshot(world.store, "sha256:" + hex) == first);
}

TEST_CASE("what is no beginning of a digest is told from one that nothing has") {
    ReferenceWorld world;
    for (const char* bad : {"sha256:", "sha256:abc", "sha256:ABCD", "sha256:../../x"}) {
        CAPTURE(bad);
        CHECK_THROWS_AS(find_snapshot(world.store, bad), store::BadValue);
    }
    std::string none = world.version(1).hex() + "0"; // one digit more than a digest has
    CHECK_THROWS_AS(find_snapshot(world.store, "sha256:" + none), store::NotFound);
}
