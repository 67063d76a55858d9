// /v1/functions
#include <fmt/format.h>

#include "src/admin/access.hpp"
#include "src/admin/ceilings.hpp"
#include "src/admin/handlers.hpp"
#include "src/admin/listening.hpp"
#include "src/admin/storage.hpp"
#include "src/admin/tenant.hpp"
#include "src/admin/trial.hpp"
#include "src/daemon/function_settings.hpp"
#include "src/ops/deploy.hpp"
#include "src/ops/json.hpp"
#include "src/store/errors.hpp"
#include "src/store/snapshots/bucket_chunks.hpp"

namespace kvmserver::admin {
namespace {

constexpr std::uint64_t kMaxPage = 10'000; // functions

Headers etag_header(const std::string& etag) { return {{"ETag", '"' + etag + '"'}}; }

struct Wanted {
    ops::DeployPlan plan;
    daemon::FunctionSettings settings;
    bool clamp = false;
    std::optional<Digest> snapshot;
};

ops::Env values_in(Members& members, const char* name) {
    ops::Env values;
    const json object = members.any(name).value_or(json::object());
    if (!object.is_object())
        throw store::BadValue(fmt::format("\"{}\" must be an object", name));
    for (const auto& [key, value] : object.items()) {
        if (!value.is_string())
            throw store::BadValue(fmt::format("\"{}\": the value of {} must be a string", name, key));
        values[key] = value.get<std::string>();
    }
    return values;
}

Wanted wanted(Call& call) {
    Members members = call.members();
    Wanted wanted;
    wanted.plan.name = call.param("name");
    wanted.plan.tenant = call.who.prefix();
    if (const auto snapshot = members.text("snapshot"))
        wanted.snapshot = digest_from(*snapshot, "snapshot");
    if (const auto manifest = members.any("manifest")) {
        wanted.plan.manifest = manifest->dump();
        wanted.settings = daemon::function_settings(*wanted.plan.manifest); // refuses what could not be served
    }
    if (const auto routes = members.texts("routes")) {
        wanted.plan.routes.emplace();
        for (const std::string& route : *routes)
            wanted.plan.routes->push_back(store::Route::parse(route));
    }
    wanted.clamp = call.query_flag("clamp");
    wanted.plan.activate = members.flag("activate").value_or(true);
    wanted.plan.compress_later = members.flag("compress_later").value_or(false);
    wanted.plan.warms_up = members.flag("warms_up").value_or(false);
    wanted.plan.message = members.message();
    wanted.plan.if_version = members.natural("if_version");
    if (const auto arrives = members.any("arrives")) {
        Members from(*arrives);
        wanted.plan.arrives = true;
        wanted.plan.activate = false;
        wanted.plan.number = from.need_natural("version");
        wanted.plan.env = values_in(from, "env");
        wanted.plan.secrets = values_in(from, "secrets");
        from.done();
    }
    wanted.plan.if_match = call.if_match();
    members.done();
    // Check the caller's rights before looking at what others have.
    require_routes(call, wanted.plan);
    require_secrets(call, wanted.plan);
    require_storage(call, wanted.plan, wanted.settings);
    return wanted;
}

// Checks the claims against the ceilings. Returns the claims that will be clamped.
std::vector<Excess> require_grants(Call& call, const Grants& grants, const Wanted& wanted) {
    Claims claims;
    if (wanted.snapshot) {
        const store::StoredSnapshot snapshot(call.store(), *wanted.snapshot);
        if (const auto facts = call.api.examinations().of_stored(snapshot))
            claims = claims_of(*facts);
        else if (!grants.all().empty()) // otherwise the trial reports what is wrong
            throw tinykvm::UserError(tinykvm::ExitCode::bad_snapshot,
                                     fmt::format("snapshot sha256:{} cannot be examined: what it asks for is unknown: "
                                                 "build it again, or see `kvmserver verify`",
                                                 wanted.snapshot->hex()));
    }
    const daemon::Scale& scale = wanted.settings.scale;
    claims.machines = scale.max;
    claims.kept_machines = scale.min;
    claims.keep_state = wanted.settings.kept;
    claims.queue = scale.queue;
    if (wanted.settings.tcp)
        claims.listen = wanted.settings.tcp->listen;
    return grants.require(claims, wanted.clamp);
}

// The summary of a function with the addresses that its TCP versions listen on.
json with_addresses(store::Functions& functions, const store::FunctionSummary& function) {
    json summary = ops::summary_json(function);
    summary["listen"] = json::array();
    if (function.routes.empty() && !function.live.empty()) // a TCP function, perhaps
        try {
            summary["listen"] = ops::listen_json(functions.describe(function.name).live_versions);
        } catch (const store::NotFound&) { // deleted meanwhile
        }
    return summary;
}

} // namespace

void list_functions(Call& call) {
    const auto limit = call.query_number("limit");
    if (limit && (*limit == 0 || *limit > kMaxPage))
        throw store::BadValue(fmt::format("limit: it is not from 1 to {}", kMaxPage));
    store::Functions functions(call.store());
    const auto some =
        functions.list({.after = call.query("after").value_or(""),
                        .prefix = call.who.prefix(),
                        .limit = static_cast<std::size_t>(limit ? *limit + 1 : 0)}); // is there a next page?
    auto all = json::array();
    for (const store::FunctionSummary& function : some)
        if (call.who.allows(store::kScopeRead, function.name))
            all.push_back(with_addresses(functions, function));
    json reply;
    if (limit && all.size() > *limit) {
        all.erase(all.size() - 1);
        reply["next"] = all.back()["name"];
    }
    reply["functions"] = std::move(all);
    call.reply(200, reply);
}

void describe_function(Call& call) {
    const auto function = store::Functions(call.store()).describe(call.param("name"));
    call.reply(200, ops::details_json(function), etag_header(function.etag));
}

void put_function(Call& call) {
    const Wanted wanted = admin::wanted(call);
    const Grants grants(call, wanted.plan.name);
    if (call.query_flag("dry_run")) {
        std::optional<store::Functions> functions;
        if (store::Store* store = call.api.source().get())
            functions.emplace(*store); // which it only reads
        const auto change = ops::change_of(wanted.plan, functions ? &*functions : nullptr);
        std::optional<store::SnapshotHold> hold;
        if (wanted.snapshot)
            hold.emplace(take_snapshot(call, *wanted.snapshot));
        json reply = ops::change_json(wanted.plan, change);
        reply["clamped"] = claims_json(require_grants(call, grants, wanted));
        if (wanted.plan.activate && wanted.settings.tcp)
            require_listening(call, wanted.plan.name, *wanted.settings.tcp, Claim::looks);
        if (functions)
            grants.require_totals(*call.api.source().get(), wanted.snapshot);
        call.reply(200, reply);
        return;
    }
    if (!wanted.snapshot)
        throw store::BadValue("\"snapshot\" is missing");
    store::Functions functions = call.functions();
    // Find mistakes before the trial.
    const ops::DeployChange change = ops::change_of(wanted.plan, &functions);
    const store::SnapshotHold hold = take_snapshot(call, *wanted.snapshot);
    store::upload_snapshot(call.store(), *wanted.snapshot); // a command on this host imports it by itself
    const std::vector<Excess> clamped = require_grants(call, grants, wanted);
    grants.require_totals(call.store(), wanted.snapshot);
    if (wanted.plan.activate && wanted.settings.tcp)
        require_listening(call, wanted.plan.name, *wanted.settings.tcp, Claim::looks);
    try_out(call, grants,
            {.function = wanted.plan.name,
             .snapshot = *wanted.snapshot,
             .manifest = wanted.plan.manifest.value_or("{}"),
             .tenant = wanted.plan.tenant,
             .activate = wanted.plan.activate,
             .env = change.env_after(),
             .secrets = change.now ? change.now->secrets : std::vector<std::string>{},
             .new_secrets = wanted.plan.secrets.value_or(ops::Env{})});
    const ops::Deployed done = [&] {
        const std::lock_guard one(call.api.deploys()); // of two concurrent deploys the second counts the first
        grants.require_totals(call.store(), wanted.snapshot);
        if (wanted.plan.activate && wanted.settings.tcp)
            require_listening(call, wanted.plan.name, *wanted.settings.tcp, Claim::keeps);
        return ops::deploy(wanted.plan, *wanted.snapshot, grants.own_text(), functions);
    }();
    // Nothing may keep it once its successor is there, or on the disk where that is a cache of a bucket.
    if (wanted.plan.compress_later || wanted.plan.warms_up || call.store().bucket())
        call.api.staged().remove(*wanted.snapshot, call.who.id());
    call.api.changed();
    call.reply(done.result.before.empty() && done.result.version == 1 ? 201 : 200,
               {{"name", wanted.plan.name},
                {"version", done.result.version},
                {"before", ops::live_json(done.result.before)},
                {"live", ops::live_json(done.result.live)},
                {"routes", ops::routes_json(done.routes)},
                {"listen", done.listen},
                {"snapshot", "sha256:" + wanted.snapshot->hex()},
                {"clamped", claims_json(clamped)},
                {"etag", done.result.etag}},
               etag_header(done.result.etag));
}

void delete_function(Call& call) {
    call.no_members();
    store::Functions(call.store()).remove(call.param("name"), call.if_match());
    call.api.changed();
    call.reply(200, {{"deleted", call.param("name")}});
}

} // namespace kvmserver::admin
