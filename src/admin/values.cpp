// .../env and .../secrets
#include <fmt/format.h>

#include "src/admin/handlers.hpp"
#include "src/common/environment.hpp"
#include "src/common/time_text.hpp"
#include "src/ops/json.hpp"
#include "src/ops/manifest.hpp"
#include "src/store/errors.hpp"
#include "src/store/functions/secrets.hpp"

namespace kvmserver::admin {
namespace {

constexpr std::size_t kMax = 1u << 20; // bytes of a body; the store limits values further

// "" for the secrets of all functions.
std::string function_of(const Call& call) { return call.has_param("name") ? call.param("name") : std::string(); }

std::string value_of(Call& call) {
    Members members = call.members(kMax);
    std::string value = members.need_text("value");
    members.done();
    return value;
}

void reply_done(Call& call, const char* did, const std::string& name, const std::vector<std::string>& warnings = {}) {
    call.api.changed();
    json reply{{"function", function_of(call)}, {did, name}};
    if (!warnings.empty())
        reply["warnings"] = warnings;
    call.reply(200, reply);
}

// Of live versions whose programs go on with the value that `name` had when they were booted.
std::vector<std::string> copied_before(Call& call, const std::string& name) {
    std::vector<std::string> warnings;
    const store::FunctionDetails function = call.functions().describe(call.param("name"));
    for (const store::VersionInfo& version : function.live_versions) {
        const ops::ManifestFacts facts = ops::manifest_facts(version.manifest);
        if (facts.after_restore.empty() && copies_environment(facts.program))
            warnings.push_back(
                fmt::format("{} v{}: {} has copied its environment when it started, so {} stays for it what it was at "
                            "its boot{}",
                            function.name, version.number, facts.program.substr(facts.program.rfind('/') + 1), name,
                            facts.tcp ? "" : ": it needs [function.hooks] after-restore (docs/howto/secrets.md)"));
    }
    return warnings;
}

void set_env(Call& call, const std::optional<std::string>& value) {
    const std::string& variable = call.param("variable");
    call.functions().set_env(call.param("name"), variable, value, call.if_match());
    reply_done(call, value ? "set" : "unset", variable, copied_before(call, variable));
}

void set_secret(Call& call, const std::optional<std::string>& value) {
    const std::string function = function_of(call);
    const std::string& name = call.param("secret");
    store::Secrets(call.store(), call.who.author()).set(function, name, value, call.if_match());
    reply_done(call, value ? "set" : "unset", name,
               function.empty() ? std::vector<std::string>{} : copied_before(call, name));
}

// Sets a secret for all functions: its value, the tenants' functions that are granted it, or both.
void set_for_all(Call& call) {
    Members members = call.members(kMax);
    const auto value = members.text("value");
    const auto grants = members.texts("for");
    members.done();
    if (!value && !grants)
        throw store::BadValue("\"value\" is missing");
    if (call.if_match())
        throw store::BadValue("secrets for all functions have no ETag: set them without a condition");
    const std::string& name = call.param("secret");
    store::Secrets(value ? call.api.source().make() : call.store()).set_for_all(name, value, grants);
    reply_done(call, "set", name);
}

} // namespace

void list_env(Call& call) {
    const auto function = store::Functions(call.store()).describe(call.param("name"));
    call.reply(200, {{"function", function.name}, {"env", function.env}}, {{"ETag", '"' + function.etag + '"'}});
}

void put_env(Call& call) { set_env(call, value_of(call)); }
void delete_env(Call& call) {
    call.no_members();
    set_env(call, std::nullopt);
}

void list_secrets(Call& call) {
    const std::string function = function_of(call);
    auto list = json::array();
    for (const store::SecretInfo& secret : store::Secrets(call.store()).list(function)) {
        list.push_back({{"name", secret.name}, {"changed", time_text(secret.changed)}});
        if (function.empty())
            list.back()["for"] = secret.grants;
    }
    call.reply(200, {{"function", function}, {"secrets", list}});
}

void put_secret(Call& call) {
    if (function_of(call).empty())
        return set_for_all(call);
    set_secret(call, value_of(call));
}
void delete_secret(Call& call) {
    call.no_members();
    set_secret(call, std::nullopt);
}

} // namespace kvmserver::admin
