#include "src/store/shared/share_all.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/store/errors.hpp"
#include "src/store/functions/settings_record.hpp"
#include "src/store/shared/copied.hpp"
#include "src/store/shared/copy.hpp"
#include "src/store/shared/documents.hpp"
#include "src/store/shared/generation.hpp"
#include "src/store/shared/publish.hpp"
#include "src/store/shared/shared_index.hpp"

namespace kvmserver::store {

namespace {

std::vector<std::string> own_functions(Store& store) {
    std::vector<std::string> names;
    auto index = store.index();
    auto rows = index->prepare("SELECT name FROM function ORDER BY name");
    while (rows.step())
        names.push_back(rows.text(0));
    return names;
}

// What was copied from another cluster, or from one that has another state now, counts no more.
void forget_copied(Store& store) {
    auto index = store.index();
    Transaction transaction(*index);
    index->execute("DELETE FROM shared");
    index->execute("DELETE FROM drained");
    transaction.commit();
}

bool same_apart_from_ids(Settings here, Settings there) {
    for (Settings* const one : {&here, &there}) {
        for (TokenRow& token : one->tokens)
            token.id = 0;
        std::ranges::sort(one->tokens, {}, &TokenRow::name);
        std::ranges::sort(one->certificates, {}, &Certificate::name);
    }
    return here == there;
}

// The function may be the cluster's already, if the store was a part of it before. Then the newer state stays.
void share_function(Store& store, const std::string& name) {
    const std::int64_t id = function_id(*store.index(), name);
    std::vector<Route> routes_before;
    if (const auto there = store.shared()->get(shared_key(name))) {
        const FunctionRecord here = load_function(*store.index(), id);
        const FunctionRecord theirs = function_of(store, *there).record;
        if (theirs.tag != here.tag)
            throw Conflict(
                fmt::format("function {} is in this store and another one of this name in the cluster: delete "
                            "one of them before this daemon joins",
                            name));
        if (theirs.revision >= here.revision)
            return copy_entry(store, *there);
        auto index = store.index();
        Transaction transaction(*index);
        note_copied(*index, there->key, {there->revision, false}); // what is here builds on it
        transaction.commit();
        routes_before = theirs.routes;
    }
    std::vector<Digest> snapshots;
    {
        auto index = store.index();
        for (const std::uint64_t number : version_numbers(*index, id))
            snapshots.push_back(load_version(*index, id, number).snapshot);
    }
    with_chunks_in_bucket(store, snapshots, [&] {
        auto index = store.index();
        Transaction transaction(*index);
        publish_function(store, *index, id, routes_before, snapshots);
        transaction.commit();
    });
}

} // namespace

std::uint64_t share_all(Store& store) {
    forget_copied(store);
    const auto names = own_functions(store);
    for (const std::string& name : names)
        share_function(store, name);
    auto index = store.index();
    const Settings here = load_settings(*index);
    if (here == Settings{})
        return names.size();
    if (const auto there = store.shared()->get(kSharedSettings)) {
        if (same_apart_from_ids(here, settings_of(store, *there)))
            return names.size(); // the follower copies them
        throw Conflict("this store and the cluster both have tokens, secrets of all functions, or certificates: remove "
                       "those of this store before its daemon joins");
    }
    Transaction transaction(*index);
    publish_settings(store, *index);
    transaction.commit();
    return names.size();
}

} // namespace kvmserver::store
