#include "src/ops/json.hpp"

#include <set>

#include "src/common/time_text.hpp"
#include "src/ops/manifest.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::ops {

using nlohmann::json;

json live_json(const std::vector<store::Live>& live) {
    auto list = json::array();
    for (const store::Live& part : live)
        list.push_back({{"version", part.version}, {"percent", part.percent}});
    return list;
}

json routes_json(const std::vector<store::Route>& routes) {
    auto list = json::array();
    for (const store::Route& route : routes)
        list.push_back(route.text());
    return list;
}

json version_json(const store::VersionInfo& version) {
    json object{{"version", version.number},
                {"snapshot", "sha256:" + version.snapshot.hex()},
                {"bytes", version.snapshot_bytes},
                {"created", time_text(version.created)},
                {"state", store::name_of(version.state)},
                {"percent", version.percent},
                {"compress_later", version.compress_later},
                {"warms_up", version.warms_until != 0}};
    if (!version.ceilings.empty())
        object["ceilings"] = json::parse(version.ceilings);
    return object;
}

json event_json(const store::Event& event) {
    json object{{"time", time_text(event.time)},
                {"author", {{"kind", event.author.token ? "token" : "user"}, {"name", event.author.name}}},
                {"action", event.action},
                {"subject", event.subject},
                {"change", event.change},
                {"message", event.message}};
    if (event.bytes)
        object["bytes"] = *event.bytes;
    if (event.new_bytes)
        object["new_bytes"] = *event.new_bytes;
    return object;
}

json summary_json(const store::FunctionSummary& function) {
    json object{{"name", function.name},
                {"live", live_json(function.live)},
                {"versions", function.versions},
                {"routes", routes_json(function.routes)},
                {"keeps_state", function.kept},
                {"created", time_text(function.created)},
                {"changed", time_text(function.changed)},
                {"created_ms", function.created},
                {"changed_ms", function.changed},
                {"etag", function.etag}};
    if (function.moved)
        object["moved"] = {{"to", function.moved->to},
                           {"forward", function.moved->forward},
                           {"version", function.moved->version},
                           {"confirmed", !function.moved->pending}};
    return object;
}

json listen_json(const std::vector<store::VersionInfo>& live) {
    std::set<ListenAddress> all;
    for (const store::VersionInfo& version : live)
        try {
            const ManifestFacts facts = manifest_facts(version.manifest);
            all.insert(facts.listen.begin(), facts.listen.end());
        } catch (const tinykvm::UserError&) { // it cannot be served: the daemon's log says why
        }
    auto list = json::array();
    for (const ListenAddress& address : all)
        list.push_back(address.text());
    return list;
}

json details_json(const store::FunctionDetails& function) {
    json object = summary_json(function);
    object["env"] = function.env;
    object["secrets"] = function.secrets;
    object["listen"] = listen_json(function.live_versions);
    object["live_versions"] = json::array();
    for (const store::VersionInfo& version : function.live_versions) {
        object["live_versions"].push_back(version_json(version));
        object["live_versions"].back()["manifest"] = json::parse(version.manifest);
    }
    return object;
}

json token_json(const store::TokenInfo& token) {
    json object{{"name", token.name},
                {"scopes", store::scope_names(token.scopes)},
                {"prefix", token.prefix},
                {"routes", token.routes},
                {"created", time_text(token.created)}};
    if (token.expires)
        object["expires"] = time_text(*token.expires);
    if (!token.ceilings.empty())
        object["ceilings"] = json::parse(token.ceilings);
    if (token.last_used)
        object["last_used"] = time_text(*token.last_used);
    return object;
}

json gc_json(const store::GcResult& result, bool dry_run) {
    return {{"bytes", result.bytes},   {"versions", result.versions},   {"snapshots", result.snapshots},
            {"chunks", result.chunks}, {"leftovers", result.leftovers}, {"removed", result.lines},
            {"dry_run", dry_run}};
}

const char* name_of(store::Finding::Kind kind) {
    switch (kind) {
    case store::Finding::Kind::repaired: return "repaired";
    case store::Finding::Kind::repairable: return "repairable";
    case store::Finding::Kind::broken: return "broken";
    case store::Finding::Kind::note: break;
    }
    return "note";
}

json verify_json(const store::VerifyReport& report) {
    auto findings = json::array();
    for (const store::Finding& finding : report.findings)
        findings.push_back({{"kind", name_of(finding.kind)}, {"line", finding.line}});
    return {{"clean", report.clean()},     {"findings", findings},          {"functions", report.functions},
            {"versions", report.versions}, {"snapshots", report.snapshots}, {"chunks", report.chunks},
            {"bytes", report.bytes}};
}

} // namespace kvmserver::ops
