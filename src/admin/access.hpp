// Which snapshots, pieces and uploads a caller may name. A caller that is limited to some functions may name only those
// of its functions and those that it uploaded. Otherwise it could read another function's memory by its digest.
#pragma once
#include <optional>
#include <set>

#include "src/admin/call.hpp"
#include "src/store/files/hold.hpp"
#include "src/store/snapshots/uploads.hpp"

namespace kvmserver::admin {

// Empty if the function was deleted meanwhile.
std::vector<store::VersionInfo> versions_of(store::Functions& functions, const std::string& name);
bool may_name(Call& call, const Digest& snapshot);
// Nothing: the caller may name all pieces.
std::optional<std::set<Digest>> pieces_within_reach(Call& call);
// Takes a hold that protects the snapshot from gc. Throws NotFound if it does not exist or the caller may not name it,
// without telling which.
store::SnapshotHold take_snapshot(Call& call, const Digest& snapshot);
// Finds an upload. A limited caller sees only uploads that it began itself. Throws NotFound.
store::UploadInfo find_upload(Call& call, const std::string& id);

} // namespace kvmserver::admin
