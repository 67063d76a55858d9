// Strict reading of the JSON in records: a missing field or one of the wrong type throws RecordError naming it.
#pragma once
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/common/digest.hpp"
#include "src/store/files/record.hpp"

namespace kvmserver::store {

using Json = nlohmann::json;

// Rejects text that is nested more deeply than any record, so that no file can exhaust the stack.
inline Json parse_record(std::string_view text) {
    constexpr int kDepth = 8;
    bool too_deep = false;
    Json json = Json::parse(
        text,
        [&](int depth, Json::parse_event_t, Json&) {
            too_deep |= depth > kDepth;
            return true;
        },
        false);
    if (json.is_discarded() || too_deep || !json.is_object())
        throw RecordError("holds no JSON object");
    return json;
}

inline const Json& field(const Json& object, const char* name) {
    const auto found = object.is_object() ? object.find(name) : object.end();
    if (found == object.end())
        throw RecordError(std::string("has no \"") + name + "\"");
    return *found;
}

inline std::uint64_t natural(const Json& value, const char* name) {
    if (!value.is_number_unsigned() ||
        value.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
        throw RecordError(std::string("\"") + name + "\" is not a whole number");
    return value.get<std::uint64_t>();
}
inline std::uint64_t natural_field(const Json& object, const char* name) { return natural(field(object, name), name); }
inline std::int64_t time_field(const Json& object, const char* name) {
    return static_cast<std::int64_t>(natural_field(object, name));
}

inline std::string text(const Json& value, const char* name) {
    if (!value.is_string())
        throw RecordError(std::string("\"") + name + "\" is not a string");
    return value.get<std::string>();
}
inline std::string text_field(const Json& object, const char* name) { return text(field(object, name), name); }

inline std::vector<std::string> texts(const Json& value, const char* name) {
    if (!value.is_array())
        throw RecordError(std::string("\"") + name + "\" is not a list");
    std::vector<std::string> list;
    for (const Json& each : value)
        list.push_back(text(each, name));
    return list;
}

inline Digest digest(const Json& value, const char* name) {
    const auto read = Digest::from_hex(text(value, name));
    if (!read)
        throw RecordError(std::string("\"") + name + "\" is no SHA-256");
    return *read;
}
inline Digest digest_field(const Json& object, const char* name) { return digest(field(object, name), name); }

inline const Json& list_field(const Json& object, const char* name) {
    const Json& value = field(object, name);
    if (!value.is_array())
        throw RecordError(std::string("\"") + name + "\" is not a list");
    return value;
}
// An element of a list, which must be an array of `count` values.
inline const Json& row(const Json& value, std::size_t count, const char* name) {
    if (!value.is_array() || value.size() != count)
        throw RecordError(std::string("\"") + name + "\" has a row of another length");
    return value;
}

} // namespace kvmserver::store
