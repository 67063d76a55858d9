#include "src/admin/access.hpp"

#include <fmt/format.h>

#include "src/store/errors.hpp"
#include "src/store/functions/tenant.hpp"
#include "src/store/snapshots/stored_snapshot.hpp"

namespace kvmserver::admin {
namespace {

// Snapshots of the caller's functions, and those that it uploaded.
std::set<Digest> own_snapshots(Call& call) {
    const auto brought = call.api.staged().all_of(call.who.id());
    std::set<Digest> own(brought.begin(), brought.end());
    store::Functions functions(call.store());
    for (const store::FunctionSummary& function : functions.list())
        if (store::in_prefix(function.name, call.who.prefix()))
            for (const store::VersionInfo& version : versions_of(functions, function.name))
                own.insert(version.snapshot);
    return own;
}

} // namespace

std::vector<store::VersionInfo> versions_of(store::Functions& functions, const std::string& name) {
    try {
        return functions.versions(name);
    } catch (const store::NotFound&) {
        return {};
    }
}

bool may_name(Call& call, const Digest& snapshot) {
    return !call.who.limited() || own_snapshots(call).contains(snapshot);
}

std::optional<std::set<Digest>> pieces_within_reach(Call& call) {
    if (!call.who.limited())
        return std::nullopt;
    std::set<Digest> pieces;
    for (const Digest& digest : own_snapshots(call)) {
        try {
            const store::StoredSnapshot snapshot(call.store(), digest);
            for (const store::Piece& piece : snapshot.pieces())
                pieces.insert(piece.chunk);
        } catch (const store::NotFound&) { // deleted meanwhile
        }
    }
    return pieces;
}

store::SnapshotHold take_snapshot(Call& call, const Digest& snapshot) {
    auto hold = may_name(call, snapshot) ? store::SnapshotHold::take(call.store(), snapshot) : std::nullopt;
    if (!hold)
        throw store::NotFound(fmt::format("there is no snapshot sha256:{}: send it first", snapshot.hex()));
    return std::move(*hold);
}

store::UploadInfo find_upload(Call& call, const std::string& id) {
    return store::Uploads(call.store()).info(id, call.who.limited() ? std::optional(call.who.id()) : std::nullopt);
}

} // namespace kvmserver::admin
