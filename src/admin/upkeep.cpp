// gc, verify, tokens
#include <fmt/format.h>

#include "src/admin/ceilings.hpp"
#include "src/admin/handlers.hpp"
#include "src/common/clock.hpp"
#include "src/daemon/control.hpp"
#include "src/ops/json.hpp"
#include "src/store/errors.hpp"
#include "src/store/shared/collect.hpp"
#include "src/store/shared/verify_shared.hpp"
#include "src/store/snapshots/bucket_chunks.hpp"

namespace kvmserver::admin {

void gc(Call& call) {
    call.no_members();
    store::GcOptions how{.keep_versions = {}, .dry_run = call.query_flag("dry_run"), .author = call.who.author()};
    if (const auto keep = call.query_number("keep")) {
        if (*keep > UINT32_MAX)
            throw store::BadValue("keep: that is too many");
        how.keep_versions = static_cast<unsigned>(*keep);
    }
    call.api.staged().expire();
    const store::GcResult result = store::gc(call.store(), how);
    if (!how.dry_run)
        call.api.changed();
    json reply = ops::gc_json(result, how.dry_run);
    if (call.store().bucket())
        reply["objects"] = call.store().shared() ? store::collect_shared_bucket(call.store(), how.dry_run)
                                                 : store::collect_bucket(call.store(), how.dry_run);
    call.reply(200, reply);
}

// Works for a store that cannot be opened too, since it is meant to repair one.
void verify(Call& call) {
    call.no_members();
    const bool of_cluster = call.query_flag("cluster");
    if (of_cluster && !call.api.control().nodes())
        throw Refused(409, "no-cluster", "this store is in no cluster", "without `--cluster` the store is verified");
    store::VerifyOptions how;
    how.repair = !call.query_flag("dry_run");
    if (of_cluster)
        return call.reply(200, ops::verify_json(store::verify_shared(call.store(), how.repair)));
    const store::VerifyReport report = store::verify(call.api.source().path(), how);
    if (how.repair)
        call.api.changed();
    call.reply(200, ops::verify_json(report));
}

void list_tokens(Call& call) {
    auto list = json::array();
    for (const store::TokenInfo& token : store::Tokens(call.store()).list())
        list.push_back(ops::token_json(token));
    call.reply(200, {{"tokens", list}});
}

void create_token(Call& call) {
    Members members = call.members();
    const std::string name = members.need_text("name");
    const auto scopes = members.texts("scopes");
    const std::string prefix = members.text("prefix").value_or("");
    const auto seconds = members.natural("expires_in");
    const auto routes = members.texts("routes").value_or(std::vector<std::string>());
    const auto granted = members.any("ceilings");
    members.done();
    if (!scopes)
        throw store::BadValue("\"scopes\" is missing: some of read, invoke, deploy, admin");
    unsigned sum = 0;
    for (const std::string& scope : *scopes)
        sum |= store::scope_from(scope);
    std::optional<std::int64_t> expires;
    if (seconds) {
        constexpr std::uint64_t kLatest = 100ull * 366 * 86400;
        if (*seconds == 0 || *seconds > kLatest)
            throw store::BadValue("\"expires_in\" must be 1 second to 100 years");
        expires = now_ms() + static_cast<std::int64_t>(*seconds) * 1000;
    }
    const std::string ceilings = token_ceilings(granted, prefix, sum);
    const std::string token =
        store::Tokens(call.api.source().make()).create(name, sum, prefix, expires, routes, ceilings);
    json reply{
        {"name", name}, {"token", token}, {"scopes", store::scope_names(sum)}, {"prefix", prefix}, {"routes", routes}};
    if (!ceilings.empty())
        reply["ceilings"] = json::parse(ceilings);
    call.reply(201, reply, {{"Cache-Control", "no-store"}});
}

void delete_token(Call& call) {
    call.no_members();
    store::Tokens(call.store()).revoke(call.param("token"));
    call.reply(200, {{"revoked", call.param("token")}});
}

} // namespace kvmserver::admin
