#include "src/store/shared/membership.hpp"

#include <fmt/format.h>

#include "src/store/errors.hpp"
#include "src/store/files/record_json.hpp"

namespace kvmserver::store {

std::optional<Membership> membership_of(const Folder& folder) {
    const auto file = folder.read(kCluster, kMaxRecordBytes);
    if (!file)
        return std::nullopt;
    try {
        const Json json = parse_record(open_record("cluster", *file));
        return Membership{text_field(json, "id"), text_field(json, "address"),
                          json.contains("node") ? text_field(json, "node") : ""};
    } catch (const RecordError& error) {
        throw UserError(ExitCode::failure,
                        fmt::format("{}: {}: put a copy of it in its place", folder.full(kCluster), error.what()));
    }
}

void set_membership(Folder& folder, const Membership& membership) {
    const Json json{{"id", membership.id}, {"address", membership.address}, {"node", membership.node}};
    folder.put(kCluster, seal_record("cluster", json.dump()));
    folder.sync_folder(".");
}

void require_index_of_cluster(const Store& store) {
    if (store.shared() || !store.folder().size_of(kCluster))
        return;
    const auto membership = membership_of(store.folder());
    throw Conflict(
        fmt::format("{}: the store belongs to the cluster of {}: make changes through its daemon, by --remote",
                    store.folder().full(kCluster), membership ? membership->address : ""));
}

} // namespace kvmserver::store
