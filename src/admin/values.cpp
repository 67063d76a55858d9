// .../env and .../secrets
#include <fmt/format.h>

#include <algorithm>

#include "src/admin/handlers.hpp"
#include "src/common/environment.hpp"
#include "src/common/time_text.hpp"
#include "src/ops/json.hpp"
#include "src/ops/manifest.hpp"
#include "src/store/errors.hpp"
#include "src/store/functions/secrets.hpp"
#include "src/store/snapshots/stored_snapshot.hpp"

namespace kvmserver::admin {
namespace {

constexpr std::size_t kLongestBody = 1u << 20; // bytes of a body; the store limits values further

// "" for the secrets of all functions.
std::string function_of(const Call& call) { return call.has_param("name") ? call.param("name") : std::string(); }

std::string value_of(Call& call) {
    Members members = call.members(kLongestBody);
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

// The bytes that a snapshot has for a variable, its name and a NUL; 0: none. Nothing: it is not known.
std::optional<std::uint64_t> room_for(Call& call, const Digest& snapshot, const std::string& name) {
    try {
        const auto facts = call.api.examinations().of_stored(store::StoredSnapshot(call.store(), snapshot));
        if (!facts)
            return std::nullopt;
        const auto at = std::ranges::find(facts->late_env, name, &tinykvm::LateVariable::name);
        return at == facts->late_env.end() ? 0 : at->bytes;
    } catch (const store::NotFound&) { // it was replaced meanwhile
        return std::nullopt;
    }
}

// Why the program of a live version does not see the new value of a variable; "": it does, as far as can be known.
std::string unseen(Call& call, const store::VersionInfo& version, const std::string& name,
                   const std::optional<std::string>& value) {
    constexpr const char* kHook = "[function.hooks] after-restore (docs/howto/secrets.md)";
    const ops::ManifestFacts facts = ops::manifest_facts(version.manifest);
    if (!facts.after_restore.empty())
        return {}; // the hook gets it
    if (const auto room = value ? room_for(call, version.snapshot, name) : std::nullopt; room == 0u)
        return fmt::format("{} does not reach the program, whose snapshot has no place for it: name it in "
                           "[function.env] or secrets, and deploy",
                           name);
    else if (room && name.size() + 1 + value->size() >= *room)
        return fmt::format("{} does not reach the program: with its name it is longer than {} bytes{}{}", name,
                           *room - 1, !facts.is_http() ? "" : ", so it needs ", !facts.is_http() ? "" : kHook);
    if (copies_environment(facts.program))
        return fmt::format("{} has copied its environment when it started, so {} stays for it what it was at its "
                           "boot{}{}",
                           facts.program.substr(facts.program.rfind('/') + 1), name,
                           !facts.is_http() ? "" : ": it needs ", !facts.is_http() ? "" : kHook);
    return {};
}

// A line for each live version whose program does not see the new value.
std::vector<std::string> unseen(Call& call, const std::string& name, const std::optional<std::string>& value) {
    std::vector<std::string> warnings;
    const store::FunctionDetails function = call.functions().describe(call.param("name"));
    for (const store::VersionInfo& version : function.live_versions)
        if (const std::string why = unseen(call, version, name, value); !why.empty())
            warnings.push_back(fmt::format("{} v{}: {}", function.name, version.number, why));
    return warnings;
}

void set_env(Call& call, const std::optional<std::string>& value) {
    const std::string& variable = call.param("variable");
    call.functions().set_env(call.param("name"), variable, value, call.if_match());
    reply_done(call, value ? "set" : "unset", variable, unseen(call, variable, value));
}

void set_secret(Call& call, const std::optional<std::string>& value) {
    const std::string function = function_of(call);
    const std::string& name = call.param("secret");
    store::Secrets(call.store(), call.who.author()).set(function, name, value, call.if_match());
    reply_done(call, value ? "set" : "unset", name,
               function.empty() ? std::vector<std::string>{} : unseen(call, name, value));
}

// Sets a secret for all functions: its value, the tenants' functions that are granted it, or both.
void set_for_all(Call& call) {
    Members members = call.members(kLongestBody);
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
