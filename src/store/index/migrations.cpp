#include "src/store/index/migrations.hpp"

#include <array>
#include <string>
#include <vector>

#include "src/store/errors.hpp"

namespace kvmserver::store {

namespace {

std::vector<std::string> tables_of(const Database& database) {
    std::vector<std::string> tables;
    // SQLite's internal tables (sqlite_sequence, sqlite_stat1) differ between versions.
    auto rows = database.prepare("SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_schema "
                                 "WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY type, name");
    while (rows.step())
        tables.push_back(rows.text(0));
    return tables;
}

} // namespace

std::span<const char* const> all_migrations() {
    static const std::array migrations{kSchemaSql,  kSchema2Sql, kSchema3Sql, kSchema4Sql,  kSchema5Sql, kSchema6Sql,
                                       kSchema7Sql, kSchema8Sql, kSchema9Sql, kSchema10Sql, kSchema11Sql};
    return migrations;
}

int schema_version(const Database& database) { return static_cast<int>(database.number("PRAGMA user_version")); }

void migrate(Database& database, std::span<const char* const> migrations) {
    database.execute("PRAGMA foreign_keys = OFF"); // a migration may replace a table to which others refer
    {
        Transaction transaction(database);
        const auto from = static_cast<std::size_t>(schema_version(database));
        for (std::size_t i = from; i < migrations.size(); ++i)
            database.execute(migrations[i]);
        if (database.prepare("PRAGMA foreign_key_check").step())
            database.damaged("rows refer to missing rows");
        database.execute("PRAGMA user_version = " + std::to_string(migrations.size()));
        transaction.commit();
    }
    database.execute("PRAGMA foreign_keys = ON");
}

void check_schema(const Database& database, std::span<const char* const> migrations) {
    Database expected(":memory:", 0);
    migrate(expected, migrations);
    if (tables_of(database) != tables_of(expected))
        database.damaged("its tables are not those of schema " + std::to_string(migrations.size()));
}

} // namespace kvmserver::store
