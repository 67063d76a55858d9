#include "src/cluster/join.hpp"

#include <fmt/format.h>

#include <optional>

#include "src/common/random_hex.hpp"
#include "src/store/errors.hpp"
#include "src/store/shared/membership.hpp"
#include "src/store/shared/share_all.hpp"
#include "src/store/snapshots/bucket_record.hpp"

namespace kvmserver::cluster {

namespace {

constexpr std::size_t kNodeBytes = 4; // of a node's id; there are few

} // namespace

std::string identify(store::Folder& folder, ClusterIndex& index) {
    if (const auto member = store::membership_of(folder)) {
        index.belong_to(member->id);
        try {
            index.require_cluster();
        } catch (const store::IndexAway&) { // what is here can be served
        }
        return member->id;
    }
    auto id = index.id();
    if (!id) // the chunks may be in a bucket already: its prefix has the store's id
        id = index.id_or(store::bucket_owner(folder).value_or(random_hex(16)));
    index.belong_to(*id);
    return *id;
}

std::string join(store::Store& store, const ClusterIndex& index, const std::string& id,
                 const std::function<void(const std::string&)>& tell) {
    std::string made = random_hex(kNodeBytes);
    if (const auto member = store::membership_of(store.folder())) {
        if (!member->node.empty())
            return member->node;
        const store::FileLock naming = store.naming();
        store::set_membership(store.folder(), {member->id, member->address, made});
        return made;
    }
    const auto functions = store::share_all(store);
    const store::FileLock naming = store.naming();
    store::set_membership(store.folder(), {id, index.name(), made});
    tell(fmt::format(
        "this store is now part of the cluster of {}{}", index.name(),
        functions == 0 ? "" : fmt::format(", which has got its {} function{}", functions, functions == 1 ? "" : "s")));
    return made;
}

} // namespace kvmserver::cluster
