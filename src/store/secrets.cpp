#include "src/store/secrets.hpp"

#include <fmt/format.h>

#include "src/store/clock.hpp"
#include "src/store/errors.hpp"
#include "src/store/settings_record.hpp"

namespace kvmserver::store {

namespace {

void write(Database& database, std::optional<std::int64_t> function, const std::string& name,
           const std::optional<std::string>& value) {
    database.prepare("DELETE FROM secret WHERE coalesce(function, 0) = ? AND name = ?")
        .bind(function.value_or(0))
        .bind(name)
        .run();
    if (!value && database.changes() == 0)
        throw NotFound(
            fmt::format("there is no secret {}: `kvmserver secret list` shows those that there are", name));
    if (value)
        database.prepare("INSERT INTO secret (function, name, value, changed) VALUES (?, ?, ?, ?)")
            .bind(function)
            .bind(name)
            .bind(*value)
            .bind(now_ms())
            .run();
}

} // namespace

void Secrets::set(const std::string& function, const std::string& name,
                  const std::optional<std::string>& value, const IfMatch& if_match) {
    check_variable_name(name);
    if (value)
        check_variable_value(name, *value);
    if (function.empty()) {
        if (if_match)
            throw BadValue("secrets for all functions have no ETag: set them without a condition");
        SettingsChange change(store_);
        write(change.database(), std::nullopt, name, value);
        change.commit();
    } else {
        FunctionChange change(store_, function, if_match);
        write(change.database(), change.id(), name, value);
        change.commit();
    }
}

std::vector<SecretInfo> Secrets::list(const std::string& function) {
    auto index = store_.index();
    std::vector<SecretInfo> secrets;
    auto rows =
        index->prepare("SELECT name, changed FROM secret WHERE coalesce(function, 0) = ? ORDER BY name");
    for (rows.bind(function.empty() ? 0 : function_id(*index, function)); rows.step();)
        secrets.push_back({rows.text(0), rows.integer(1)});
    return secrets;
}

std::map<std::string, std::string> Secrets::values(const std::string& function) {
    auto index = store_.index();
    std::map<std::string, std::string> values;
    auto rows = index->prepare("SELECT name, value FROM secret WHERE coalesce(function, 0) IN (0, ?) ORDER "
                               "BY coalesce(function, 0)");
    for (rows.bind(function.empty() ? 0 : function_id(*index, function)); rows.step();)
        values[rows.text(0)] = rows.text(1);
    return values;
}

} // namespace kvmserver::store
