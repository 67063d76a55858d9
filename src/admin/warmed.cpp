// /v1/functions/{name}/versions/{version}/snapshot: a version that went live before its program was warmed up.
#include <fmt/format.h>

#include "src/admin/access.hpp"
#include "src/admin/ceilings.hpp"
#include "src/admin/handlers.hpp"
#include "src/admin/trial.hpp"
#include "src/daemon/control.hpp"
#include "src/ops/json.hpp"
#include "src/store/errors.hpp"
#include "src/store/snapshots/bucket_chunks.hpp"
#include "src/store/snapshots/gc.hpp"

namespace kvmserver::admin {
namespace {

SnapshotFacts facts_of(Call& call, const Digest& snapshot) {
    const auto facts = call.api.examinations().of_stored(store::StoredSnapshot(call.store(), snapshot));
    if (!facts)
        throw tinykvm::UserError(tinykvm::ExitCode::bad_snapshot,
                                 fmt::format("snapshot sha256:{} cannot be examined: build it again, or see "
                                             "`kvmserver verify`",
                                             snapshot.hex()));
    return *facts;
}

// It takes a place that was granted to another snapshot, so it may not ask for anything else.
void require_same(Call& call, const Digest& now, const Digest& warmed) {
    const SnapshotFacts before = facts_of(call, now), after = facts_of(call, warmed);
    if (before.permissions != after.permissions || before.limits != after.limits || before.cwd != after.cwd)
        throw store::Conflict("the warmed-up snapshot asks for other permissions or limits: deploy it as a version");
}

} // namespace

void put_version_snapshot(Call& call) {
    Members members = call.members();
    const auto given = members.text("snapshot");
    const bool compress_later = members.flag("compress_later").value_or(false);
    members.done();
    if (!given)
        throw store::BadValue("\"snapshot\" is missing");
    const Digest warmed = digest_from(*given, "snapshot");
    const std::string& name = call.param("name");
    const std::uint64_t number = call.version_param();
    store::Functions functions(call.store());
    const store::VersionInfo version = functions.version(name, number);
    if (version.tenant != call.who.prefix())
        throw store::Conflict(fmt::format("{} v{} was deployed by somebody else", name, number));
    const store::SnapshotHold hold = take_snapshot(call, warmed);
    store::upload_snapshot(call.store(), warmed);
    if (warmed != version.snapshot && version.warms_until != 0) { // otherwise the store says what is wrong
        const Grants grants(call, name);
        require_same(call, version.snapshot, warmed);
        grants.require(claims_of(facts_of(call, warmed)), true);
        grants.require_totals(call.store(), warmed, number);
        const store::FunctionDetails function = functions.describe(name);
        try_out(call, grants,
                {.function = name,
                 .snapshot = warmed,
                 .manifest = version.manifest,
                 .tenant = version.tenant,
                 .activate = version.percent > 0,
                 .env = function.env,
                 .secrets = function.secrets});
    }
    const Digest before = functions.warmed(name, number, warmed, compress_later);
    if (compress_later) // nothing may keep it once its successor is there
        call.api.staged().remove(warmed, call.who.id());
    call.api.changed();
    if (before != warmed)
        call.api.superseded(before);
    call.reply(200, {{"name", name}, {"version", number}, {"snapshot", "sha256:" + warmed.hex()}});
}

} // namespace kvmserver::admin
