// Which snapshots, pieces and uploads a caller may name: one that is limited to some functions only those of
// its functions and those that it brought itself. (Else it could read another function's memory by its digest.)
#pragma once
#include <optional>
#include <set>

#include "src/admin/call.hpp"
#include "src/store/files/hold.hpp"
#include "src/store/snapshots/uploads.hpp"

namespace kvmserver::admin {

// None for a function that has been deleted since it was listed.
std::vector<store::VersionInfo> versions_of(store::Functions& functions, const std::string& name);
bool may_name(Call& call, const Digest& snapshot);
// Nothing: all of them.
std::optional<std::set<Digest>> pieces_within_reach(Call& call);
// Keeps it from gc. Throws NotFound when it is not there, or not for this caller: which of these it does not tell.
store::SnapshotHold take_snapshot(Call& call, const Digest& snapshot);
// The same of an upload: one that is limited has only those that it began itself.
store::UploadInfo find_upload(Call& call, const std::string& id);

} // namespace kvmserver::admin
