// /v1/functions/{name}/versions, rollback, traffic
#include <algorithm>

#include "src/admin/arrive.hpp"
#include "src/admin/handlers.hpp"
#include "src/admin/listening.hpp"
#include "src/ops/deploy.hpp"
#include "src/ops/json.hpp"
#include "src/store/errors.hpp"

namespace kvmserver::admin {
namespace {

using store::Functions;
using store::Live;

void reply_switched(Call& call, const std::vector<Live>& before, const std::vector<Live>& live, bool dry_run,
                    const std::string& etag = "") {
    Headers headers;
    if (!etag.empty())
        headers.emplace_back("ETag", '"' + etag + '"');
    call.reply(200,
               {{"name", call.param("name")},
                {"before", ops::live_json(before)},
                {"live", ops::live_json(live)},
                {"dry_run", dry_run}},
               headers);
}

// A dry run refuses what the change itself would refuse.
void check_condition(Functions& functions, const std::string& name, const store::IfMatch& if_match) {
    if (!if_match)
        return;
    const std::string etag = functions.describe(name).etag;
    if (*if_match != etag)
        throw store::StaleEtag(name, etag);
}

void require_listening_after_rollback(Call& call, Functions& functions, const std::string& name,
                                      std::optional<std::uint64_t> version) {
    try {
        if (!version)
            version = ops::rollback_target(name, functions.versions(name));
    } catch (const store::NotFound&) {
        return; // the rollback itself says what is missing
    }
    require_listening(call, name, {Live{*version, 100}}, Claim::keeps);
}

} // namespace

void list_versions(Call& call) {
    auto list = json::array();
    for (const store::VersionInfo& version : Functions(call.store()).versions(call.param("name")))
        list.push_back(ops::version_json(version));
    call.reply(200, {{"name", call.param("name")}, {"versions", list}});
}

void delete_version(Call& call) {
    call.no_members();
    const std::uint64_t version = call.version_param();
    forget_arrived(call, call.param("name"), version);
    call.functions().remove_version(call.param("name"), version, call.if_match());
    call.api.changed();
    call.reply(200, {{"deleted", call.param("name")}, {"version", version}});
}

void rollback(Call& call) {
    Members members = call.members();
    const auto version = members.natural("version");
    const std::string message = members.message();
    members.done();
    const std::string& name = call.param("name");
    Functions functions = call.functions();
    if (!call.query_flag("dry_run")) {
        require_listening_after_rollback(call, functions, name, version);
        const auto switched = functions.rollback(name, version, call.if_match(), message);
        call.api.changed();
        return reply_switched(call, switched.before, switched.live, false, switched.etag);
    }
    check_condition(functions, name, call.if_match());
    const auto all = functions.versions(name); // newest first
    const std::vector<Live> live{{version ? *version : ops::rollback_target(name, all), 100}};
    ops::check_traffic_of(name, all, live);
    require_listening(call, name, live, Claim::looks);
    reply_switched(call, ops::live_of(all), live, true);
}

void put_traffic(Call& call) {
    Members members = call.members();
    const auto parts = members.any("live");
    const std::string message = members.message();
    members.done();
    if (!parts || !parts->is_array())
        throw store::BadValue("\"live\" must be a list of {\"version\": N, \"percent\": N}");
    std::vector<Live> live;
    for (const json& part : *parts) {
        Members fields(part);
        const std::uint64_t version = fields.need_natural("version"), percent = fields.need_natural("percent");
        fields.done();
        if (percent > 100)
            throw store::BadValue("\"percent\" is more than 100");
        if (percent > 0)
            live.push_back({version, static_cast<unsigned>(percent)});
    }
    std::ranges::sort(live, {}, &Live::version);
    const std::string& name = call.param("name");
    Functions functions = call.functions();
    if (call.query_flag("dry_run")) {
        check_condition(functions, name, call.if_match());
        const auto all = functions.versions(name);
        ops::check_traffic_of(name, all, live);
        require_listening(call, name, live, Claim::looks);
        return reply_switched(call, ops::live_of(all), live, true);
    }
    require_listening(call, name, live, Claim::keeps);
    const auto switched = functions.set_traffic(name, live, call.if_match(), message);
    call.api.changed();
    reply_switched(call, switched.before, switched.live, false, switched.etag);
}

} // namespace kvmserver::admin
