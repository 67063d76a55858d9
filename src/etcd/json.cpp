#include "src/etcd/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "src/etcd/base64.hpp"

namespace kvmserver::etcd {
namespace {

constexpr int kDeepest = 16;
constexpr std::size_t kMostValues = 2 << 20; // each takes up to some 128 bytes
constexpr std::size_t kLongestText = 200;    // of an error

// Codes of gRPC (google.golang.org/grpc/codes).
enum Code {
    kCanceled = 1,
    kDeadlineExceeded = 4,
    kPermissionDenied = 7,
    kResourceExhausted = 8,
    kUnavailable = 14,
    kUnauthenticated = 16,
};

BadReply strange(const char* name, const char* what) { return BadReply(fmt::format("\"{}\" is no {}", name, what)); }

const Json* find(const Json& object, const char* name) {
    if (!object.is_object())
        throw BadReply(fmt::format("what should have \"{}\" is no object", name));
    const auto found = object.find(name);
    return found == object.end() || found->is_null() ? nullptr : &*found;
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

} // namespace

Json parse_reply(std::string_view text) {
    bool too_much = false;
    std::size_t values = 0;
    Json json = Json::parse(
        text,
        [&](int depth, Json::parse_event_t, Json&) {
            too_much |= depth > kDeepest || ++values > kMostValues;
            return !too_much; // nothing more is kept
        },
        false);
    if (too_much)
        throw BadReply("JSON that is too large");
    if (!json.is_object())
        throw BadReply("no JSON object");
    return json;
}

std::int64_t number_in(const Json& object, const char* name) {
    const Json* const value = find(object, name);
    if (!value)
        return 0;
    if (value->is_number_integer())
        return value->get<std::int64_t>();
    std::int64_t number = 0;
    if (!value->is_string())
        throw strange(name, "number");
    const auto& text = value->get_ref<const std::string&>();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size())
        throw strange(name, "number");
    return number;
}

bool flag_in(const Json& object, const char* name) {
    const Json* const value = find(object, name);
    if (value && !value->is_boolean())
        throw strange(name, "boolean");
    return value && value->get<bool>();
}

std::string text_in(const Json& object, const char* name) {
    const Json* const value = find(object, name);
    if (value && !value->is_string())
        throw strange(name, "text");
    return value ? value->get<std::string>() : "";
}

std::string bytes_in(const Json& object, const char* name) {
    const Json* const value = find(object, name);
    if (!value)
        return "";
    auto bytes = value->is_string() ? from_base64(value->get_ref<const std::string&>()) : std::nullopt;
    if (!bytes)
        throw strange(name, "base64");
    return std::move(*bytes);
}

const Json& list_in(const Json& object, const char* name) {
    static const Json empty = Json::array();
    const Json* const value = find(object, name);
    if (value && !value->is_array())
        throw strange(name, "list");
    return value ? *value : empty;
}

const Json& object_in(const Json& object, const char* name) {
    static const Json empty = Json::object();
    const Json* const value = find(object, name);
    if (value && !value->is_object())
        throw strange(name, "object");
    return value ? *value : empty;
}

std::int64_t revision_in(const Json& reply) {
    const std::int64_t revision = number_in(object_in(reply, "header"), "revision");
    if (revision <= 0)
        throw BadReply("no revision");
    return revision;
}

Entry entry_in(const Json& kv, const std::string& prefix) {
    Entry entry{bytes_in(kv, "key"), bytes_in(kv, "value"), number_in(kv, "create_revision"),
                number_in(kv, "mod_revision")};
    if (!entry.key.starts_with(prefix))
        throw BadReply("a key that was not asked for");
    entry.key.erase(0, prefix.size());
    return entry;
}

std::string end_of_prefix(std::string prefix) {
    while (!prefix.empty() && prefix.back() == '\xff')
        prefix.pop_back();
    if (prefix.empty())
        return std::string(1, '\0'); // of etcd's range_end: all keys from `key` on
    ++prefix.back();
    return prefix;
}

std::string brief(std::string_view text) {
    std::string out(text.substr(0, kLongestText));
    for (char& c : out)
        if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f)
            c = ' ';
    while (out.ends_with(' '))
        out.pop_back();
    return out;
}

bool ErrorReply::is_away() const {
    return code == kUnavailable || code == kDeadlineExceeded || code == kCanceled || is_not_done();
}

bool ErrorReply::is_not_done() const {
    return has(text, "etcdserver: no leader") ||
           (code == kResourceExhausted && has(text, "etcdserver: too many requests"));
}

bool ErrorReply::wants_login() const {
    return code == kUnauthenticated || has(text, "invalid auth token") || has(text, "user name is empty") ||
           has(text, "revision of auth store is old");
}

bool ErrorReply::is_about_permission() const {
    return wants_login() || code == kPermissionDenied || has(text, "permission denied") ||
           has(text, "authentication failed");
}

ErrorReply error_in(std::string_view reply, long status) {
    constexpr long kBadGateway = 502, kGatewayTimeout = 504;
    try {
        const Json json = parse_reply(reply);
        const Json* const inner = find(json, "error");
        const Json& error = inner && inner->is_object() ? *inner : json; // an object in streams
        const std::string text = brief(text_in(error, error.contains("message") ? "message" : "error"));
        const std::int64_t code = number_in(error, error.contains("grpc_code") ? "grpc_code" : "code");
        if (!text.empty() && code > 0 && code <= kUnauthenticated)
            return {text, static_cast<int>(code)};
    } catch (const BadReply&) { // it is from something before etcd
    }
    const bool away = status >= kBadGateway && status <= kGatewayTimeout;
    return {fmt::format("HTTP status {} without an error of etcd's: is it an etcd of version 3.4 or later?", status),
            away ? kUnavailable : 0};
}

} // namespace kvmserver::etcd
