// States of suspended machines: whose they are, and when gc removes them.
#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"

#include "src/common/clock.hpp"
#include "src/store/snapshots/gc.hpp"
#include "src/store/snapshots/saved_state.hpp"

using namespace kvmserver;
using namespace kvmserver::store;
using namespace kvmserver::store::test;

namespace {

StateOwner owner_of(Store& store, const std::string& function, std::uint64_t version, unsigned machine = 1) {
    for (const auto& one : Functions(store).list())
        if (one.name == function)
            return {function, one.created, version, machine};
    return {function, 1, version, machine};
}

void save(Store& store, const StateOwner& owner) {
    auto state = SavedState::claim(
        store.shared_folder(),
        SavedState::id_of(owner.function + std::to_string(owner.machine) + std::to_string(owner.version)), owner, 0);
    REQUIRE(state);
    const tinykvm::UniqueFd file = state->begin();
    REQUIRE(::write(file.get(), "a state", 7) == 7);
    state->commit();
}

std::vector<StateOwner> owners(const Store& store) {
    std::vector<StateOwner> all;
    for (auto& [id, owner] : saved_states(store.folder()))
        all.push_back(owner);
    std::ranges::sort(all);
    return all;
}

} // namespace

TEST_CASE("gc removes the states of versions that are not live, and no others") {
    const TempFolder folder;
    Store store(folder / "store");
    deploy(store, "hello", 1);
    deploy(store, "hello", 2);
    arrive(store, "comes", 1);
    const StateOwner old = owner_of(store, "hello", 1), live = owner_of(store, "hello", 2),
                     second = owner_of(store, "hello", 2, 2), comes = owner_of(store, "comes", 1),
                     deleted = owner_of(store, "deleted", 1);
    StateOwner former = live; // of a function of that name, which was deleted
    former.created -= 1;
    former.machine = 3;
    for (const StateOwner& owner : {old, live, second, comes, deleted, former})
        save(store, owner);
    CHECK(owners(store).size() == 6);
    {
        const auto used = SavedState::claim(store.shared_folder(), SavedState::id_of("deleted11"), deleted, 0);
        GcOptions dry;
        dry.dry_run = true;
        CHECK(gc(store, dry).leftovers == 2);
        CHECK(owners(store).size() == 6);
        const GcResult result = gc(store);
        CHECK(result.leftovers == 2);
        CHECK(result.bytes >= 14);
    }
    CHECK(owners(store) == std::vector{comes, deleted, live, second});
    CHECK(gc(store).leftovers == 1);
    CHECK(owners(store) == std::vector{comes, live, second});
    Functions(store).remove("hello");
    CHECK(gc(store).leftovers == 2);
    CHECK(owners(store) == std::vector{comes});
}

TEST_CASE("a version that is on its way from another daemon stays, whatever gc may remove") {
    const TempFolder folder;
    Store store(folder / "store");
    arrive(store, "comes", 1);
    GcOptions none;
    none.keep_versions = 0;
    CHECK(gc(store, none).versions == 0);
    CHECK(Functions(store).version("comes", 1).state == VersionState::pending);
    store.index()
        ->prepare("UPDATE version SET created = ?")
        .bind(std::int64_t{now_ms() - 8ll * 24 * 3600 * 1000})
        .run();
    CHECK(gc(store, none).versions == 1);
}

TEST_CASE("files among the states that are none are left alone") {
    const TempFolder folder;
    Store store(folder / "store");
    deploy(store, "hello", 1);
    save(store, owner_of(store, "hello", 1));
    const fs::path states = folder / "store/states";
    const std::string id = SavedState::id_of("x");
    for (const std::string& name :
         {id, id + ".new", id + ".of.", id + ".of.hello", id + ".of.hello.1.1", id + ".of.hello.1.1.1.1",
          id + ".of.hello.1.-1.1", id + ".of.HELLO.1.1.1", id + ".of.hello.1.1.x", id + ".of.hello.1.1.99999999999",
          std::string("notes"), SavedState::id_of("y") + ".of.gone.1.1.1"})
        write_text(states / name, "");
    CHECK(owners(store).size() == 1);
    CHECK(gc(store).leftovers == 0);
    CHECK(fs::exists(states / id));
}

TEST_CASE("a state goes on in the file that was kept, unless that is large or was kept often") {
    const TempFolder folder;
    Store store(folder / "store");
    deploy(store, "hello", 1);
    auto state = SavedState::claim(store.shared_folder(), SavedState::id_of("hello"), owner_of(store, "hello", 1), 0);
    REQUIRE(state);
    const auto size = [](const tinykvm::UniqueFd& file) { return ::lseek(file.get(), 0, SEEK_END); };
    const auto begin = [&] {
        tinykvm::UniqueFd file = state->begin();
        CHECK(size(file) == 0);
        REQUIRE(::write(file.get(), "first", 5) == 5);
        state->keep_begun(std::move(file));
    };
    begin();
    CHECK(size(state->begin(4)) == 0); // it is larger: another one
    begin();
    CHECK(size(state->begin(5)) == 5);
    state->drop();
    CHECK(size(state->begin(5)) == 0);
    begin();
    int times = 0;
    while (times < 100 && size(state->begin(5)) == 5)
        ++times;
    CHECK(times > 2);
    CHECK(times < 16); // kMostStateParts, of src/snapshot/state_file.hpp
    begin();
    {
        const tinykvm::UniqueFd file = state->begin(5);
        size(file);
        REQUIRE(::write(file.get(), ", second", 8) == 8);
    }
    state->commit();
    CHECK(state->bytes() == 13);
    CHECK(size(state->begin(100)) == 0);
}
