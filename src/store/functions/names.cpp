#include "src/store/functions/names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/store/errors.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::store {

namespace {

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_label(std::string_view text) {
    return !text.empty() && text.size() <= 63 && text.front() != '-' && text.back() != '-' &&
           std::all_of(text.begin(), text.end(), [](char c) { return is_lower(c) || is_digit(c) || c == '-'; });
}

bool is_host(std::string_view host) {
    if (host.empty())
        return true;
    if (host.size() > 253)
        return false;
    if (host.starts_with("*."))
        host.remove_prefix(2);
    for (;;) {
        const auto dot = host.find('.');
        if (!is_label(host.substr(0, dot)))
            return false;
        if (dot == host.npos)
            return true;
        host.remove_prefix(dot + 1);
    }
}

bool is_path(std::string_view path) {
    return path.starts_with('/') && path.size() <= 1024 && std::all_of(path.begin(), path.end(), [](char c) {
               return c > ' ' && c < 0x7f && c != '*' && c != '?' && c != '#';
           });
}

} // namespace

bool is_function_name(std::string_view name) { return is_label(name); }

void check_function_name(std::string_view name) {
    if (!is_function_name(name))
        throw BadValue(fmt::format("function name \"{}\": use 1 to 63 of a-z, 0-9 and -, not - at either end",
                                   tinykvm::brief(name)));
}

void check_variable_name(std::string_view name) {
    const auto fits = [](char c) { return is_lower(c) || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c); };
    if (name.empty() || name.size() > 128 || is_digit(name.front()) || !std::all_of(name.begin(), name.end(), fits))
        throw BadValue(fmt::format("name \"{}\": use letters, digits and _, not a digit first", tinykvm::brief(name)));
}

void check_variable_value(std::string_view name, std::string_view value) {
    if (value.size() > (128u << 10) || value.find('\0') != value.npos || !tinykvm::is_utf8(value))
        throw BadValue(fmt::format("value of {}: it must be UTF-8 text of at most 128 KiB without NUL bytes",
                                   tinykvm::brief(name)));
}

void check_manifest(std::string_view json) {
    bool deep = false;
    const auto shallow = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
        deep |= depth > 64;
        return !deep;
    };
    // Deep nesting would exhaust the stack when the value is freed, so the depth is checked during parsing.
    if (json.size() > (1u << 20) || !tinykvm::is_utf8(json) ||
        !nlohmann::json::parse(json, shallow, false).is_object() || deep)
        throw BadValue("the manifest must be a JSON object of at most 1 MiB");
}

Route Route::parse(std::string_view text) {
    Route route;
    const auto slash = text.find('/');
    route.host = text.substr(0, slash);
    std::transform(route.host.begin(), route.host.end(), route.host.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    route.path = slash == text.npos ? "/" : text.substr(slash);
    if (route.path.ends_with('*'))
        route.path.pop_back();
    if (text.empty() || !is_host(route.host) || !is_path(route.path))
        throw BadValue(fmt::format("route \"{}\": write HOST, /PATH/* or HOST/PATH/*", tinykvm::brief(text)));
    return route;
}

std::string Route::text() const {
    if (path == "/" && !host.empty())
        return host;
    return host + path + (path.ends_with('/') ? "*" : "");
}

void Route::check() const {
    if (!is_host(host) || !is_path(path))
        throw BadValue(fmt::format("route \"{}{}\": write HOST, /PATH/* or HOST/PATH/*", tinykvm::brief(host),
                                   tinykvm::brief(path)));
}

} // namespace kvmserver::store
