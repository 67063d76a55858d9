#include "src/cluster/join.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "src/common/random_hex.hpp"
#include "src/store/errors.hpp"
#include "src/store/shared/membership.hpp"
#include "src/store/shared/share_all.hpp"
#include "src/store/snapshots/bucket_record.hpp"

namespace kvmserver::cluster {

namespace {

using tinykvm::ExitCode;
using tinykvm::UserError;

constexpr const char* kCluster = "cluster"; // the key of its id
constexpr int kSchema = 1;                  // of what the entries hold

std::string id_in(const ClusterIndex& index, const std::string& text) {
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_object() || !json.contains("id") || !json["id"].is_string() || !json.contains("schema") ||
        !json["schema"].is_number_integer())
        throw UserError(ExitCode::failure,
                        fmt::format("{}: its entry \"cluster\" makes no sense: restore a backup of it", index.name()));
    if (json["schema"].get<int>() > kSchema)
        throw UserError(ExitCode::conflict,
                        fmt::format("{}: a newer kvmserver has changed the form of this cluster (it is {}, this one "
                                    "knows {}): install that version here, too",
                                    index.name(), json["schema"].get<int>(), kSchema));
    return json["id"].get<std::string>();
}

std::optional<std::string> id_of(ClusterIndex& index) {
    const auto entry = index.get(kCluster);
    return entry ? std::optional(id_in(index, entry->value)) : std::nullopt;
}

[[noreturn]] void lost(const ClusterIndex& index) {
    throw UserError(ExitCode::conflict,
                    fmt::format("{} has lost the cluster to which this store belongs: restore etcd from its backup; to "
                                "begin a new cluster with this store's functions, remove the file \"cluster\" in it",
                                index.name()));
}

} // namespace

void require_same_cluster(ClusterIndex& index, const std::string& id) {
    const auto there = id_of(index);
    if (!there)
        lost(index);
    if (*there != id)
        throw UserError(ExitCode::conflict,
                        fmt::format("{} has another cluster than the one to which this store belongs: give the address "
                                    "and prefix of that, or another --store",
                                    index.name()));
}

std::string identify(store::Folder& folder, ClusterIndex& index) {
    if (const auto member = store::membership_of(folder)) {
        try {
            require_same_cluster(index, member->id);
        } catch (const store::IndexAway&) { // what is here can be served
        }
        return member->id;
    }
    if (auto id = id_of(index))
        return *id;
    // The chunks may be in a bucket already: its prefix has the store's id.
    const std::string made = store::bucket_owner(folder).value_or(random_hex(16));
    const store::SharedCondition none{.key = kCluster};
    const store::SharedChange change{kCluster, nlohmann::json{{"id", made}, {"schema", kSchema}}.dump()};
    (void)index.change({&none, 1}, {&change, 1}); // or another daemon was faster
    auto id = id_of(index);
    if (!id)
        lost(index);
    return *id;
}

void join(store::Store& store, ClusterIndex& index, const std::string& id,
          const std::function<void(const std::string&)>& tell) {
    if (store::membership_of(store.folder()))
        return;
    const auto functions = store::share_all(store);
    const store::FileLock naming = store.naming();
    store::set_membership(store.folder(), {id, index.name()});
    tell(fmt::format("this store is now part of the cluster at {}{}", index.name(),
                     functions == 0 ? "" : fmt::format(", which has got its {} functions", functions)));
}

} // namespace kvmserver::cluster
