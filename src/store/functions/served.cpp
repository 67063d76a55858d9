#include "src/store/functions/served.hpp"

#include <fmt/format.h>

#include "src/store/functions/tenant.hpp"

namespace kvmserver::store {

namespace {

// Rows whose first column is the id of a function, in the order of these ids.
class Rows {
public:
    Rows(const Database& database, std::string_view sql, std::string_view column, std::optional<std::int64_t> only)
        : rows_(database.prepare(
              fmt::format(fmt::runtime(sql), only ? fmt::format("{} = {}", column, *only) : std::string("true")))),
          there_(rows_.step()) {}
    // Calls `add` for each row of the function. Rows of smaller ids are skipped.
    template <class Add>
    void of(std::int64_t function, const Add& add) {
        for (; there_ && rows_.integer(0) <= function; there_ = rows_.step())
            if (rows_.integer(0) == function)
                add(rows_);
    }

private:
    Statement rows_;
    bool there_;
};

void read(const Database& database, std::optional<std::int64_t> only,
          const std::function<void(const ServedFunction&)>& take) {
    Rows live(database,
              "SELECT t.function, t.number, t.percent, s.digest, v.manifest, v.tenant, v.ceilings FROM traffic t "
              "JOIN version v ON v.function = t.function AND v.number = t.number "
              "JOIN snapshot s ON s.id = v.snapshot WHERE {} ORDER BY t.function, t.number",
              "t.function", only);
    Rows routes(database, "SELECT function, host, path FROM route WHERE {} ORDER BY function, host, path", "function",
                only);
    Rows env(database, "SELECT function, name, value FROM env WHERE {} ORDER BY function", "function", only);
    // coalesce: so the index of secrets is used
    Rows secrets(database,
                 "SELECT coalesce(function, 0), name, value FROM secret WHERE coalesce(function, 0) > 0 AND {} "
                 "ORDER BY coalesce(function, 0)",
                 "coalesce(function, 0)", only);
    auto heads = database.prepare(fmt::format("SELECT id, name, created, moved FROM function WHERE {} ORDER BY id",
                                              only ? fmt::format("id = {}", *only) : "true"));
    while (heads.step()) {
        const std::int64_t id = heads.integer(0);
        ServedFunction function{heads.text(1), heads.integer(2), {}, {}, {}, {}};
        if (const std::string moved = heads.text(3); !moved.empty())
            function.moved = moved_from_text(moved);
        live.of(id, [&](const Statement& row) {
            function.live.push_back({row.natural(1), static_cast<unsigned>(row.natural(2)), row.digest(3), row.text(4),
                                     row.text(5), row.text(6)});
        });
        routes.of(id, [&](const Statement& row) { function.routes.push_back({row.text(1), row.text(2)}); });
        env.of(id, [&](const Statement& row) { function.env.emplace(row.text(1), row.text(2)); });
        secrets.of(id, [&](const Statement& row) { function.secrets.emplace(row.text(1), row.text(2)); });
        take(function);
    }
}

} // namespace

Served::Served(Store& store) : index_(store.index()), transaction_(*index_, Transaction::Kind::read) {}

std::vector<std::string> Served::names() const {
    std::vector<std::string> names;
    auto rows = index_->prepare("SELECT name FROM function");
    while (rows.step())
        names.push_back(rows.text(0));
    return names;
}

std::map<std::string, SharedSecret> Served::shared_secrets() const {
    std::map<std::string, SharedSecret> shared;
    auto rows = index_->prepare("SELECT name, value, grants FROM secret WHERE coalesce(function, 0) = 0");
    while (rows.step())
        shared[rows.text(0)] = {rows.text(1), split_words(rows.text(2))};
    return shared;
}

void Served::each(const std::function<void(const ServedFunction&)>& take) const { read(*index_, std::nullopt, take); }

std::optional<ServedFunction> Served::find(const std::string& name) const {
    auto id = index_->prepare("SELECT id FROM function WHERE name = ?");
    if (!id.bind(name).step())
        return std::nullopt;
    std::optional<ServedFunction> found;
    read(*index_, id.integer(0), [&](const ServedFunction& function) { found = function; });
    return found;
}

std::map<std::string, std::string> secrets_of(const ServedFunction& function, const ServedVersion& version,
                                              const std::map<std::string, SharedSecret>& shared) {
    std::map<std::string, std::string> values = function.secrets;
    for (const auto& [name, secret] : shared)
        if (version.tenant.empty() || fits_any(function.name, secret.grants))
            values.emplace(name, secret.value);
    return values;
}

} // namespace kvmserver::store
