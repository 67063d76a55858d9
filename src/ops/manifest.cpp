#include "src/ops/manifest.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "src/store/errors.hpp"

namespace kvmserver::ops {
namespace {

using nlohmann::json;

json parse(const std::string& text) {
    store::check_manifest(text);
    return json::parse(text);
}

[[noreturn]] void wrong(const std::string& name, const char* what) {
    throw store::BadValue(fmt::format("manifest: {} must be {}", name, what));
}

// Returns null if it is absent.
const json* table(const json& from, const char* key, const std::string& name) {
    const auto at = from.find(key);
    if (at == from.end())
        return nullptr;
    if (!at->is_object())
        wrong(name, "a table");
    return &*at;
}

std::string text(const json& value, const std::string& name) {
    if (!value.is_string())
        wrong(name, "a string");
    return value.get<std::string>();
}

std::string path(const json& value, const std::string& name) {
    std::string path = text(value, name);
    if (!path.starts_with('/'))
        wrong(name, "a path that begins with /");
    for (const char c : path)
        if (static_cast<unsigned char>(c) <= ' ' || c == 0x7f)
            wrong(name, "without spaces and control characters");
    return path;
}

} // namespace

ManifestFacts manifest_facts(const std::string& text_of_manifest) {
    const json top = parse(text_of_manifest);
    ManifestFacts facts;
    if (const auto run = top.find("run"); run != top.end() && run->is_object())
        if (const auto program = run->find("program"); program != run->end() && program->is_string())
            facts.program = program->get<std::string>(); // only for advice: a snapshot has its program in it
    const json* function = table(top, "function", "function");
    if (!function)
        return facts;
    if (const auto at = function->find("routes"); at != function->end()) {
        if (!at->is_array())
            wrong("function.routes", "a list of strings");
        facts.routes.emplace();
        for (const json& route : *at)
            facts.routes->push_back(store::Route::parse(text(route, "function.routes")));
    }
    if (const auto protocol = function->find("protocol"); protocol != function->end()) {
        const std::string named = text(*protocol, "function.protocol");
        facts.tcp = named == "tcp";
        facts.tls_passthrough = named == "tls-passthrough";
    }
    if (const auto at = function->find("listen"); facts.tcp && at != function->end()) {
        if (!at->is_array())
            wrong("function.listen", "a list of strings");
        for (const json& address : *at)
            facts.listen.push_back(ListenAddress::parse("function.listen", text(address, "function.listen")));
    }
    if (const json* env = table(*function, "env", "function.env"))
        for (const auto& [name, value] : env->items()) {
            store::check_variable_name(name);
            facts.env[name] = text(value, "function.env." + name);
            store::check_variable_value(name, facts.env[name]);
        }
    if (const json* hooks = table(*function, "hooks", "function.hooks")) {
        if (const auto at = hooks->find("health"); at != hooks->end() && *at != "")
            facts.health = path(*at, "function.hooks.health");
        if (const auto at = hooks->find("after-restore"); at != hooks->end() && *at != "")
            facts.after_restore = path(*at, "function.hooks.after-restore");
    }
    return facts;
}

} // namespace kvmserver::ops
