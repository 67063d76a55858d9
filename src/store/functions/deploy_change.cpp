#include "src/store/functions/deploy_change.hpp"

#include <fmt/format.h>

#include <set>

#include "src/store/files/record_json.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::store {

namespace {

using Values = std::map<std::string, Json>;

constexpr std::size_t kLongest = 300;
constexpr std::size_t kLongestValue = 30; // longer ones are not told

// [run], [function] and the tables within it by their keys. Routes and environment are compared as they apply.
Values values_of(std::string_view manifest) {
    Values values;
    const Json all = Json::parse(manifest, nullptr, false);
    for (const auto& [key, value] : all.items()) {
        if (!value.is_object() || (key != "run" && key != "function")) {
            values.emplace(key, value);
            continue;
        }
        for (const auto& [inner, part] : value.items()) {
            if (key == "function" && (inner == "env" || inner == "routes"))
                continue;
            if (!part.is_object()) {
                values.emplace(inner, part);
                continue;
            }
            for (const auto& [last, leaf] : part.items())
                values.emplace(fmt::format("{}.{}", inner, last), leaf);
        }
    }
    return values;
}

// Numbers, switches and short texts; "" for others.
std::string shown(const Json& value) {
    if (!value.is_number() && !value.is_boolean() && !value.is_string())
        return "";
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    return text.size() <= kLongestValue ? text : "";
}

class Line {
public:
    void add(const std::string& item) {
        if (text_.size() > kLongest) {
            more_ = true;
            return;
        }
        text_ += (text_.empty() ? "" : ", ") + tinykvm::brief(item);
    }
    std::string text() const { return text_ + (more_ ? ", ..." : ""); }

private:
    std::string text_;
    bool more_ = false;
};

template <class Value, class Changed>
void compare(const std::map<std::string, Value>& before, const std::map<std::string, Value>& after,
             const std::string& kind, Line& line, const Changed& changed) {
    for (const auto& [key, value] : after)
        if (!before.contains(key))
            line.add(fmt::format("+{}{}", kind, key));
    for (const auto& [key, value] : before)
        if (!after.contains(key))
            line.add(fmt::format("-{}{}", kind, key));
    for (const auto& [key, value] : after)
        if (const auto old = before.find(key); old != before.end() && old->second != value)
            line.add(kind + changed(key, old->second, value));
}

} // namespace

std::string deploy_change(const Deployed& before, const Deployed& after) {
    Line line;
    compare(values_of(before.manifest), values_of(after.manifest), "", line,
            [](const std::string& key, const Json& old, const Json& now) {
                const std::string from = shown(old), to = shown(now);
                return from.empty() || to.empty() ? key : fmt::format("{} {} -> {}", key, from, to);
            });
    if (std::set(before.routes.begin(), before.routes.end()) != std::set(after.routes.begin(), after.routes.end()))
        line.add("routes");
    compare(before.env, after.env, "env ", line,
            [](const std::string& key, const std::string&, const std::string&) { return key; });
    return line.text();
}

} // namespace kvmserver::store
