#include "src/store/functions/secrets.hpp"

#include <fmt/format.h>

#include "src/common/clock.hpp"
#include "src/store/errors.hpp"
#include "src/store/functions/changes.hpp"
#include "src/store/functions/settings_record.hpp"
#include "src/store/functions/tenant.hpp"

namespace kvmserver::store {

namespace {

[[noreturn]] void no_such(const std::string& name) {
    throw NotFound(fmt::format("there is no secret {}: `kvmserver secret list` lists them", name));
}

void write(Database& database, std::optional<std::int64_t> function, const std::string& name,
           const std::optional<std::string>& value, const std::string& grants = "") {
    database.prepare("DELETE FROM secret WHERE coalesce(function, 0) = ? AND name = ?")
        .bind(function.value_or(0))
        .bind(name)
        .run();
    if (!value && database.changes() == 0)
        no_such(name);
    if (value)
        database.prepare("INSERT INTO secret (function, name, value, changed, grants) VALUES (?, ?, ?, ?, ?)")
            .bind(function)
            .bind(name)
            .bind(*value)
            .bind(now_ms())
            .bind(grants)
            .run();
}

std::optional<std::int64_t> id_of(const Database& database, const std::string& function) {
    auto found = database.prepare("SELECT id FROM function WHERE name = ?");
    return found.bind(function).step() ? std::optional(found.integer(0)) : std::nullopt;
}

} // namespace

void Secrets::set(const std::string& function, const std::string& name, const std::optional<std::string>& value,
                  const IfMatch& if_match) {
    check_variable_name(name);
    if (value)
        check_variable_value(name, *value);
    if (function.empty()) {
        if (if_match)
            throw BadValue("secrets for all functions have no ETag: set them without a condition");
        if (value)
            return set_for_all(name, value, std::nullopt);
        SettingsChange change(store_);
        write(change.database(), std::nullopt, name, value);
        note_change(change.database(), "");
        change.commit();
    } else {
        FunctionChange change(store_, function, if_match);
        write(change.database(), change.id(), name, value);
        Event event;
        event.author = author_;
        event.action = name_of(value ? Action::set_secret : Action::unset_secret);
        event.subject = name;
        change.commit(event);
    }
}

std::vector<SecretInfo> Secrets::list(const std::string& function) {
    auto index = store_.index();
    std::vector<SecretInfo> secrets;
    auto rows =
        index->prepare("SELECT name, changed, grants FROM secret WHERE coalesce(function, 0) = ? ORDER BY name");
    for (rows.bind(function.empty() ? 0 : function_id(*index, function)); rows.step();)
        secrets.push_back({rows.text(0), rows.integer(1), split_words(rows.text(2))});
    return secrets;
}

void Secrets::set_for_all(const std::string& name, const std::optional<std::string>& value,
                          const std::optional<std::vector<std::string>>& grants) {
    check_variable_name(name);
    if (value)
        check_variable_value(name, *value);
    if (grants)
        for (const std::string& pattern : *grants)
            check_name_pattern(pattern);
    SettingsChange change(store_);
    auto now = change.database().prepare("SELECT value, grants FROM secret WHERE function IS NULL AND name = ?");
    const bool there = now.bind(name).step();
    if (!there && !value)
        no_such(name);
    write(change.database(), std::nullopt, name, value ? *value : now.text(0),
          grants  ? joined_words(*grants)
          : there ? now.text(1)
                  : "");
    note_change(change.database(), "");
    change.commit();
}

std::map<std::string, std::string> Secrets::read(const std::string& function, bool granted_only) {
    auto index = store_.index();
    std::map<std::string, std::string> values;
    auto rows = index->prepare("SELECT name, value, grants, function IS NULL FROM secret "
                               "WHERE coalesce(function, 0) IN (0, ?) ORDER BY coalesce(function, 0)");
    for (rows.bind(id_of(*index, function).value_or(0)); rows.step();) {
        const bool for_all = rows.integer(3) != 0;
        if (!for_all || !granted_only || fits_any(function, split_words(rows.text(2))))
            values[rows.text(0)] = rows.text(1);
    }
    return values;
}

std::map<std::string, std::string> Secrets::values(const std::string& function, const std::string& tenant) {
    return read(function, !tenant.empty());
}

std::set<std::string> Secrets::within_reach(const std::string& function) {
    std::set<std::string> names;
    for (const auto& [name, value] : read(function, true))
        names.insert(name);
    return names;
}

} // namespace kvmserver::store
