// Converts plain values to JSON and back, by their Fields. Decoding is strict and names the place of the first error.
#pragma once
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "src/snapshot/fields.hpp"
#include "src/snapshot/format.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver {

// The path of a value in the document, for messages: "machine.regions[3].begin".
struct JsonPath {
    const JsonPath* parent = nullptr;
    const char* name = nullptr; // null: `index` is used
    std::size_t index = 0;
    std::string text() const {
        if (!name)
            return fmt::format("{}[{}]", parent->text(), index);
        return parent ? fmt::format("{}.{}", parent->text(), name) : name;
    }
    [[noreturn]] void bad(const std::string& why) const {
        throw FormatError(fmt::format("metadata is inconsistent: {} {}", text(), why));
    }
};

using Json = nlohmann::json;

template <class T>
concept Number = std::is_integral_v<T> && !std::is_same_v<T, bool>;
template <class T>
concept WithFields = requires {
    Fields<T>::all();
};

// --- encode

inline Json to_json_value(bool value) { return value; }
template <Number T>
Json to_json_value(T value) {
    return value;
}
// nlohmann writes null for values that are not finite, and decoding rejects null
inline Json to_json_value(double value) { return value; }
template <class T>
requires std::is_enum_v<T> Json to_json_value(T value) { return static_cast<std::underlying_type_t<T>>(value); }
// Linux strings may hold any bytes, JSON strings only UTF-8. Others are saved as {"hex": ...}.
inline Json to_json_value(const std::string& text) {
    if (tinykvm::is_utf8(text))
        return text;
    return {{"hex", tinykvm::to_hex({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()})}};
}
inline Json to_json_value(const std::vector<std::uint8_t>& bytes) { return tinykvm::to_hex(bytes); }
template <std::size_t n>
Json to_json_value(const std::array<std::uint8_t, n>& bytes) {
    return tinykvm::to_hex(bytes);
}
template <WithFields T>
Json to_json_value(const T& value);
template <class T>
Json to_json_value(const std::vector<T>& values) {
    Json list = Json::array();
    for (const T& value : values)
        list.push_back(to_json_value(value));
    return list;
}
template <WithFields T>
Json to_json_value(const T& value) {
    Json json = kAsRow<T> ? Json::array() : Json::object();
    const auto add = [&](const auto& field) {
        if constexpr (kAsRow<T>)
            json.push_back(to_json_value(value.*field.member));
        else if (auto member = to_json_value(value.*field.member); !field.optional || !member.empty())
            json[field.name] = std::move(member);
    };
    std::apply([&](const auto&... field) { (add(field), ...); }, Fields<T>::all());
    return json;
}

// --- decode

inline void from_json_value(const Json& json, const JsonPath& place, bool& value) {
    if (!json.is_boolean())
        place.bad("is neither true nor false");
    value = json.get<bool>();
}
template <Number T>
void from_json_value(const Json& json, const JsonPath& place, T& value) {
    const bool fits = json.is_number_unsigned()
                          ? std::in_range<T>(json.get<std::uint64_t>())
                          : json.is_number_integer() && std::in_range<T>(json.get<std::int64_t>());
    if (!fits)
        place.bad(fmt::format("is not a whole number of {} bits", 8 * sizeof(T)));
    value = json.get<T>();
}
inline void from_json_value(const Json& json, const JsonPath& place, double& value) {
    if (!json.is_number() || !std::isfinite(json.get<double>()))
        place.bad("is not a number");
    value = json.get<double>();
}
template <class T>
requires std::is_enum_v<T>
void from_json_value(const Json& json, const JsonPath& place, T& value) {
    std::underlying_type_t<T> number;
    from_json_value(json, place, number);
    value = static_cast<T>(number);
}
inline std::vector<std::uint8_t> hex_value(const Json& json, const JsonPath& place) {
    auto bytes = json.is_string() ? tinykvm::from_hex(json.get_ref<const std::string&>()) : std::nullopt;
    if (!bytes)
        place.bad("is not hexadecimal");
    return std::move(*bytes);
}
inline void from_json_value(const Json& json, const JsonPath& place, std::string& text) {
    if (json.is_object() && json.size() == 1 && json.contains("hex")) {
        const auto bytes = hex_value(json["hex"], place);
        text.assign(bytes.begin(), bytes.end());
        return;
    }
    if (!json.is_string())
        place.bad("is not a string");
    text = json.get<std::string>();
}
inline void from_json_value(const Json& json, const JsonPath& place, std::vector<std::uint8_t>& bytes) {
    bytes = hex_value(json, place);
}
template <std::size_t n>
void from_json_value(const Json& json, const JsonPath& place, std::array<std::uint8_t, n>& bytes) {
    const auto decoded = hex_value(json, place);
    if (decoded.size() != n)
        place.bad(fmt::format("has not {} bytes", n));
    std::copy(decoded.begin(), decoded.end(), bytes.begin());
}
template <WithFields T>
void from_json_value(const Json& json, const JsonPath& place, T& value);
template <class T>
void from_json_value(const Json& json, const JsonPath& place, std::vector<T>& values) {
    if (!json.is_array())
        place.bad("is not a list");
    values.resize(json.size());
    for (std::size_t i = 0; i < values.size(); ++i)
        from_json_value(json[i], JsonPath{&place, nullptr, i}, values[i]);
}
template <class Member>
bool field_from_json(const Json& object, const JsonPath& place, const char* name, bool optional, Member& member) {
    const JsonPath here{&place, name, 0};
    const auto found = object.find(name);
    if (found == object.end() && optional)
        return false;
    if (found == object.end())
        here.bad("is missing");
    from_json_value(*found, here, member);
    return true;
}
template <WithFields T>
requires kAsRow<T>
void row_from_json(const Json& json, const JsonPath& place, T& value) {
    constexpr auto fields = Fields<T>::all();
    if (!json.is_array() || json.size() != std::tuple_size_v<decltype(fields)>)
        place.bad(fmt::format("is not a list of {} values", std::tuple_size_v<decltype(fields)>));
    std::size_t i = 0;
    std::apply(
        [&](const auto&... field) {
            (from_json_value(json[i++], JsonPath{&place, field.name, 0}, value.*field.member), ...);
        },
        fields);
}
template <WithFields T>
void from_json_value(const Json& json, const JsonPath& place, T& value) {
    if constexpr (kAsRow<T>)
        return row_from_json(json, place, value);
    if (!json.is_object())
        place.bad("is not an object");
    constexpr auto fields = Fields<T>::all();
    std::size_t found = 0;
    std::apply(
        [&](const auto&... field) {
            ((found += field_from_json(json, place, field.name, field.optional, value.*field.member) ? 1 : 0), ...);
        },
        fields);
    if (json.size() == found)
        return;
    for (auto item = json.begin(); item != json.end(); ++item) {
        const std::string& name = item.key();
        const bool known = std::apply([&](const auto&... field) { return ((name == field.name) || ...); }, fields);
        if (!known)
            place.bad(fmt::format("has an unknown field \"{}\"", tinykvm::printable(name)));
    }
}

} // namespace kvmserver
