#include "src/daemon/function_settings.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>

#include "src/http/fields.hpp"
#include "src/store/functions/names.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

namespace {

using nlohmann::json;

[[noreturn]] void fail(const std::string& key, const char* what) {
    throw tinykvm::UserError(tinykvm::ExitCode::usage, fmt::format("{} must be {}", key, what));
}

const json* child(const json* from, const char* name) {
    if (!from || !from->is_object())
        return nullptr;
    const auto at = from->find(name);
    return at == from->end() ? nullptr : &*at;
}

std::optional<unsigned> whole(const json* table, const char* name, unsigned least, unsigned most) {
    const json* value = child(table, name);
    if (!value)
        return std::nullopt;
    if (!value->is_number_integer() || value->get<std::int64_t>() < least || value->get<std::int64_t>() > most)
        fail(fmt::format("function.scale.{}", name), fmt::format("a whole number from {} to {}", least, most).c_str());
    return value->get<unsigned>();
}

// `key` includes the names of its tables.
std::optional<std::uint64_t> duration(const json* table, const std::string& key) {
    const json* value = child(table, key.c_str() + key.rfind('.') + 1);
    if (!value)
        return std::nullopt;
    const std::string text = value->is_string() ? value->get<std::string>() : value->is_number() ? value->dump() : "";
    const auto ns = duration_ns(text);
    if (!ns)
        fail(key, "a time such as \"60s\", \"500ms\", \"2m\" or \"1h\"");
    return ns;
}

[[noreturn]] void misplaced(const std::string& key, const char* why) {
    throw tinykvm::UserError(tinykvm::ExitCode::usage, fmt::format("{} {}", key, why));
}

bool flag(const json* value, const char* key) {
    if (value && !value->is_boolean())
        fail(key, "true or false");
    return value && value->get<bool>();
}

std::vector<ListenAddress> listen_addresses(const json* value) {
    constexpr const char* kKey = "function.listen";
    constexpr std::size_t kMost = 16;
    if (!value)
        misplaced("function.protocol",
                  "= \"tcp\" needs function.listen = [\"ADDRESS:PORT\"], or listen = [] for what only other functions "
                  "reach ([function.storage])");
    if (!value->is_array() || value->size() > kMost)
        fail(kKey, fmt::format("an array of up to {} addresses, such as [\"127.0.0.1:5432\"]", kMost).c_str());
    std::vector<ListenAddress> all;
    for (const json& item : *value) {
        if (!item.is_string())
            fail(kKey, "an array of strings");
        const ListenAddress address = ListenAddress::parse(kKey, item.get<std::string>());
        for (const ListenAddress& other : all)
            if (address.overlaps(other))
                misplaced(kKey, fmt::format("has both {} and {}, which overlap", other.text(), address.text()).c_str());
        all.push_back(address);
    }
    std::ranges::sort(all);
    return all;
}

// "": none.
std::string hook_path(const json* function, const char* hook) {
    const json* const given = child(child(function, "hooks"), hook);
    if (!given)
        return {};
    const auto* const path = given->get_ptr<const std::string*>();
    if (!path || (!path->empty() && !path->starts_with('/')))
        fail(fmt::format("function.hooks.{}", hook), "a path that begins with /");
    return *path;
}

// `machines`: that keep their state.
Sticky sticky_settings(const json* function, unsigned machines) {
    constexpr const char* kDefaultCookie = "kvmserver-machine";
    const json* const given = child(function, "sticky");
    if (given && machines < 2)
        misplaced("function.sticky", "is for function.scale.machines of 2 or more: with one machine all requests reach "
                                     "the same");
    if (!given)
        return {"", machines < 2 ? "" : kDefaultCookie};
    if (!given->is_object() || given->size() != 1 || (!given->contains("header") && !given->contains("cookie")))
        fail("function.sticky", "a table with one of header = \"NAME\" and cookie = \"NAME\"");
    const std::string kind = given->begin().key();
    const auto* const name = given->begin()->get_ptr<const std::string*>();
    if (!name || !http::is_token(*name))
        fail("function.sticky." + kind, "a name of letters, digits and - or _");
    return kind == "header" ? Sticky{*name, ""} : Sticky{"", *name};
}

std::string storage_function(const json* function) {
    const json* const given = child(function, "storage");
    if (!given)
        return {};
    if (!given->is_object())
        fail("function.storage", "a table with function = \"NAME\"");
    const auto named = given->find("function");
    const auto* const name = named == given->end() ? nullptr : named->get_ptr<const std::string*>();
    if (!name || !store::is_function_name(*name))
        fail("function.storage.function", "the name of a function");
    return *name;
}

std::optional<TcpSettings> tcp_settings(const json& top, const json* function) {
    const json* const given = child(function, "protocol");
    const std::string protocol = !given ? "http" : given->is_string() ? given->get<std::string>() : "";
    if (protocol != "http" && protocol != "tcp" && protocol != "tls-passthrough")
        fail("function.protocol", "\"http\", \"tcp\" or \"tls-passthrough\"");
    TcpSettings settings;
    settings.by_name = protocol == "tls-passthrough";
    if (protocol != "tcp" && child(function, "listen"))
        misplaced("function.listen", "is for functions with protocol = \"tcp\"");
    if (protocol == "http") {
        if (child(function, "drain"))
            misplaced("function.drain", "is for functions with protocol = \"tcp\" or \"tls-passthrough\"");
        return std::nullopt;
    }
    if (!settings.by_name && child(function, "routes"))
        misplaced("function.routes", "is for HTTP functions; a function with protocol = \"tcp\" has function.listen");
    for (const char* key : {"health", "after-restore", "before-snapshot"})
        if (const json* hook = child(child(function, "hooks"), key); hook && *hook != "")
            misplaced(
                fmt::format("function.hooks.{}", key),
                fmt::format("is an HTTP request, which a function with protocol = \"{}\" does not answer", protocol)
                    .c_str());
    if (!settings.by_name)
        settings.listen = listen_addresses(child(function, "listen"));
    settings.server_first = flag(child(&top, "server-first"), "server-first");
    if (settings.by_name && settings.server_first)
        misplaced("server-first", "excludes function.protocol = \"tls-passthrough\": a TLS client speaks first");
    settings.drain_ns = duration(function, "function.drain").value_or(settings.drain_ns);
    return settings;
}

} // namespace

std::optional<std::uint64_t> duration_ns(std::string_view text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || !(value >= 0))
        return std::nullopt;
    const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
    const double scale = unit == "ms"                  ? 1e6
                         : unit.empty() || unit == "s" ? 1e9
                         : unit == "m"                 ? 60e9
                         : unit == "h"                 ? 3600e9
                                                       : 0;
    constexpr double kMax = 365.0 * 86400 * 1e9;
    if (scale == 0 || value * scale > kMax)
        return std::nullopt;
    return static_cast<std::uint64_t>(value * scale);
}

FunctionSettings function_settings(std::string_view manifest) {
    FunctionSettings settings;
    const json top = json::parse(manifest, nullptr, false);
    const json* const function = child(&top, "function");
    settings.tcp = tcp_settings(top, function);
    const json* const scale = child(function, "scale");
    if (scale && !scale->is_object())
        fail("function.scale", "a table");
    if (const json* ephemeral = child(function, "ephemeral")) {
        if (!ephemeral->is_boolean())
            fail("function.ephemeral", "true or false");
        settings.kept = !ephemeral->get<bool>();
    }
    if (settings.kept && child(&top, "max-request-cpu"))
        misplaced("max-request-cpu", "limits the requests of a machine that is reset after each; one with "
                                     "function.ephemeral = false serves many at once");
    if (const auto concurrency = whole(scale, "concurrency", 1, 256); concurrency && !settings.kept)
        fail("function.scale.concurrency", "absent unless function.ephemeral = false: a machine that is reset serves "
                                           "one request at a time");
    else
        settings.concurrency = concurrency.value_or(settings.concurrency);
    if (const json* suspend = child(scale, "suspend")) {
        settings.suspend = flag(suspend, "function.scale.suspend");
        if (settings.suspend && !settings.kept)
            fail("function.scale.suspend", "absent unless function.ephemeral = false: a machine that is reset keeps "
                                           "nothing that could be saved");
    }
    for (const char* name : {"min", "max", "idle"})
        if (settings.kept && child(scale, name) && !(settings.suspend && std::string_view(name) == "idle"))
            fail(fmt::format("function.scale.{}", name),
                 "absent where function.ephemeral = false: function.scale.machines of them run all the time, or until "
                 "they are suspended (function.scale.suspend, function.scale.idle)");
    const auto machines = whole(scale, "machines", 1, 64);
    if (machines && !settings.kept)
        fail("function.scale.machines", "absent unless function.ephemeral = false: function.scale.max is for machines "
                                        "that are reset");
    if (machines.value_or(1) > 1 && settings.tcp)
        misplaced("function.scale.machines",
                  "above 1 is for HTTP functions: a TCP client says nothing that shows which "
                  "machine knows it");
    settings.sticky = sticky_settings(function, machines.value_or(1));
    settings.scale.min = whole(scale, "min", 0, 1024).value_or(0);
    settings.scale.max = whole(scale, "max", 1, 1024);
    if (settings.scale.max && *settings.scale.max < settings.scale.min)
        fail("function.scale.max", "at least function.scale.min");
    if (settings.kept)
        settings.scale.min = *(settings.scale.max = machines.value_or(1));
    settings.scale.idle_ns = duration(scale, "function.scale.idle");
    settings.scale.linger_ns = duration(scale, "function.scale.linger");
    if (settings.scale.linger_ns && !settings.suspend)
        fail("function.scale.linger", "absent without function.scale.suspend: only the process of a machine that was "
                                      "saved lingers");
    settings.scale.rest_ns = duration(scale, "function.scale.rest");
    if (settings.scale.rest_ns && settings.kept)
        fail("function.scale.rest", "absent where function.ephemeral = false: a machine that keeps its state is made "
                                    "once (function.scale.suspend saves it when it is idle)");
    settings.scale.queue = whole(scale, "queue", 0, 1'000'000);
    settings.scale.queue_ns = duration(scale, "function.scale.queue-timeout").value_or(settings.scale.queue_ns);
    settings.storage = storage_function(function);
    settings.after_restore = hook_path(function, "after-restore");
    settings.before_snapshot = hook_path(function, "before-snapshot");
    if (const json* secrets = child(function, "secrets")) {
        if (!secrets->is_array())
            fail("function.secrets", "an array of strings");
        for (const json& name : *secrets) {
            if (!name.is_string())
                fail("function.secrets", "an array of strings");
            settings.secrets.push_back(name.get<std::string>());
        }
    }
    // Only gc uses it, but an invalid value is refused here with the rest.
    if (const json* keep = child(child(function, "versions"), "keep"))
        if (!keep->is_number_integer() || keep->get<std::int64_t>() < 1 || keep->get<std::int64_t>() > 1'000'000)
            fail("function.versions.keep", "a whole number from 1 to 1000000");
    return settings;
}

// The hook's request body is {"env": {...}, "secrets": {...}}.
Values values_of(const FunctionSettings& settings, const std::map<std::string, std::string>& env,
                 std::map<std::string, std::string> secrets, const std::vector<std::string>& own) {
    const auto has = [](const std::vector<std::string>& names, const std::string& name) {
        return std::ranges::find(names, name) != names.end();
    };
    std::erase_if(secrets,
                  [&](const auto& secret) { return !has(own, secret.first) && !has(settings.secrets, secret.first); });
    Values values;
    if (!settings.after_restore.empty())
        values.body = json{{"env", env}, {"secrets", secrets}}.dump();
    auto environment = env;
    for (const auto& [name, value] : secrets)
        environment[name] = value;
    for (const auto& [name, value] : environment)
        values.environment += fmt::format("{}={}", name, value) + '\0';
    return values;
}

} // namespace kvmserver::daemon
