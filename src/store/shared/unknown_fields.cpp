#include "src/store/shared/unknown_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "src/store/files/record_json.hpp"
#include "src/store/functions/settings_record.hpp"
#include "src/store/shared/documents.hpp"

namespace kvmserver::store {

namespace {

// Of a record, or of a text that is JSON itself. null: it is neither.
Json inner(const std::string& text) {
    constexpr std::string_view kRecord = "kvmserver-record ";
    std::string_view json = text;
    if (json.starts_with(kRecord))
        json.remove_prefix(std::min(json.size(), json.find('\n')));
    try {
        return parse_record(json);
    } catch (const RecordError&) {
        return {};
    }
}

// What is left out where there is nothing of it.
bool says_nothing(const Json& value) {
    return value.is_null() || (value.is_structured() && value.empty()) || value == "" || value == false;
}

std::optional<std::string> unknown_in(const Json& theirs, const Json& ours, const std::string& path) {
    if (theirs.is_object() && ours.is_object()) {
        for (const auto& [key, value] : theirs.items()) {
            const std::string below = path.empty() ? key : fmt::format("{}.{}", path, key);
            if (const auto found = ours.find(key); found != ours.end()) {
                if (auto unknown = unknown_in(value, *found, below))
                    return unknown;
            } else if (!says_nothing(value)) {
                return below;
            }
        }
    } else if (theirs.is_array() && ours.is_array()) {
        for (std::size_t i = 0; i < theirs.size(); ++i) {
            const std::string below = fmt::format("{}[{}]", path, i);
            if (i >= ours.size())
                return below;
            if (auto unknown = unknown_in(theirs[i], ours[i], below))
                return unknown;
        }
    } else if (theirs.is_string() && ours.is_string() && theirs != ours) {
        return unknown_in(inner(theirs.get<std::string>()), inner(ours.get<std::string>()), path);
    }
    return std::nullopt;
}

} // namespace

std::optional<std::string> unknown_field(const SharedEntry& entry) {
    try {
        if (entry.key == kSharedSettings)
            return unknown_in(inner(entry.value), inner(to_record(settings_from_record(entry.value))), "");
        if (entry.key.starts_with(kSharedFunctions))
            return unknown_in(inner(entry.value), inner(to_text(shared_function_from_text(entry.value))), "");
    } catch (const RecordError&) {
    }
    return std::nullopt;
}

} // namespace kvmserver::store
