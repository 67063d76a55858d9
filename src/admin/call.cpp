#include "src/admin/call.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "src/store/errors.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::admin {

using store::BadValue;

namespace {

[[noreturn]] void wrong(const char* name, const char* what) {
    throw BadValue(fmt::format("\"{}\" must be {}", name, what));
}

} // namespace

Members::Members(json object) : object_(std::move(object)) {
    if (!object_.is_object())
        throw BadValue("the body must be a JSON object");
}

std::optional<json> Members::any(const char* name) {
    const auto at = object_.find(name);
    if (at == object_.end())
        return std::nullopt;
    json value = std::move(*at);
    object_.erase(at);
    return value;
}

std::optional<std::string> Members::text(const char* name) {
    const auto value = any(name);
    if (!value)
        return std::nullopt;
    if (!value->is_string())
        wrong(name, "a string");
    return value->get<std::string>();
}

std::string Members::need_text(const char* name) {
    auto value = text(name);
    if (!value)
        throw BadValue(fmt::format("\"{}\" is missing", name));
    return *value;
}

std::optional<std::uint64_t> Members::natural(const char* name) {
    const auto value = any(name);
    if (!value)
        return std::nullopt;
    if (!value->is_number_unsigned() || value->get<std::uint64_t>() > INT64_MAX)
        wrong(name, "a whole number");
    return value->get<std::uint64_t>();
}

std::uint64_t Members::need_natural(const char* name) {
    const auto value = natural(name);
    if (!value)
        throw BadValue(fmt::format("\"{}\" is missing", name));
    return *value;
}

std::optional<bool> Members::flag(const char* name) {
    const auto value = any(name);
    if (value && !value->is_boolean())
        wrong(name, "true or false");
    return value ? std::optional(value->get<bool>()) : std::nullopt;
}

std::optional<std::vector<std::string>> Members::texts(const char* name) {
    const auto value = any(name);
    if (!value)
        return std::nullopt;
    if (!value->is_array() || !std::ranges::all_of(*value, [](const json& item) { return item.is_string(); }))
        wrong(name, "a list of strings");
    return value->get<std::vector<std::string>>();
}

std::string Members::message() {
    std::string message = text("message").value_or("");
    store::check_message(message);
    return message;
}

void Members::done() const {
    if (!object_.empty())
        throw BadValue(fmt::format("\"{}\" is not known here", tinykvm::brief(object_.begin().key())));
}

std::optional<std::string> Call::query(const char* name) const {
    const auto at = request.query.find(name);
    return at == request.query.end() ? std::nullopt : std::optional(at->second);
}

bool Call::query_flag(const char* name) const {
    const auto value = query(name);
    if (!value || *value == "0" || *value == "false")
        return false;
    if (*value != "" && *value != "1" && *value != "true")
        throw BadValue(fmt::format("{}={}: it is 1 or 0", name, tinykvm::brief(*value)));
    return true;
}

std::optional<std::uint64_t> Call::query_number(const char* name) const {
    const auto value = query(name);
    return value ? std::optional(number_from(*value, name)) : std::nullopt;
}

std::uint64_t Call::version_param() const {
    const std::string& text = param("version");
    return number_from(text.starts_with('v') ? std::string_view(text).substr(1) : std::string_view(text), "version");
}

std::string Call::body(std::size_t max_bytes) {
    std::string bytes;
    std::byte buffer[16384];
    while (const std::size_t count = exchange.read(buffer)) {
        if (bytes.size() + count > max_bytes)
            throw Refused(413, "too-large", fmt::format("the body is larger than {} bytes", max_bytes));
        bytes.append(reinterpret_cast<const char*>(buffer), count);
    }
    return bytes;
}

Members Call::members(std::size_t max_bytes, std::size_t values) {
    const std::string bytes = body(max_bytes);
    if (bytes.empty())
        return Members(json::object());
    bool deep = false;
    std::size_t seen = 0; // counted because a value of two bytes takes fifty in memory
    const auto small = [&](int depth, json::parse_event_t, json&) {
        deep |= depth > 80;
        return !deep && ++seen <= 2 * values; // objects and lists are counted twice
    };
    json object = json::parse(bytes, small, false);
    if (seen > 2 * values)
        throw BadValue(fmt::format("the body has more than {} values", values));
    if (deep || object.is_discarded())
        throw BadValue("the body is no JSON");
    return Members(std::move(object));
}

void Call::no_members() { members().done(); }

store::IfMatch Call::if_match() const {
    const std::string_view match = request.header("If-Match"), none = request.header("If-None-Match");
    if (!none.empty()) {
        if (none != "*" || !match.empty())
            throw Refused(400, "bad-value", "If-None-Match must be * here, and alone");
        return "";
    }
    if (match.empty())
        return std::nullopt;
    if (match.size() < 3 || !match.starts_with('"') || !match.ends_with('"'))
        throw Refused(400, "bad-value", "If-Match must be one strong ETag in quotes");
    return std::string(match.substr(1, match.size() - 2));
}

void Call::reply(unsigned status, const json& document, Headers headers) {
    headers.emplace_back("Content-Type", "application/json");
    reply_bytes(status, document.dump(-1, ' ', false, json::error_handler_t::replace) + "\n", headers);
}

void Call::reply_empty(unsigned status, const Headers& headers) { exchange.begin(status, headers, 0); }

void Call::reply_bytes(unsigned status, std::string_view bytes, const Headers& headers) {
    exchange.begin(status, headers, bytes.size());
    exchange.write(std::as_bytes(std::span(bytes)));
}

Digest digest_from(std::string_view text, const char* what) {
    const auto digest = Digest::from_hex(text.starts_with("sha256:") ? text.substr(sizeof "sha256:" - 1) : text);
    if (!digest)
        throw BadValue(
            fmt::format("{}: '{}' is no SHA-256 (64 lower-case hexadecimal digits)", what, tinykvm::brief(text)));
    return *digest;
}

std::uint64_t number_from(std::string_view text, std::string_view what) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value > INT64_MAX)
        throw BadValue(fmt::format("{}: '{}' is not a whole number", what, tinykvm::brief(text)));
    return value;
}

} // namespace kvmserver::admin
