// The index's schema and how an older one becomes the current one.
#pragma once
#include <span>

#include "src/store/index/database.hpp"

namespace kvmserver::store {

extern const char* const kSchemaSql;  // schema.sql
extern const char* const kSchema2Sql; // schema_2.sql
extern const char* const kSchema3Sql; // schema_3.sql

// Element n turns schema n into schema n + 1; schema 0 is an empty database. Once released, an element never
// changes.
std::span<const char* const> all_migrations();

int schema_version(const Database& database);
// From its version to the last, in one transaction, foreign keys checked at its end.
void migrate(Database& database, std::span<const char* const> migrations);
// Throws IndexDamaged unless the tables are exactly those that the migrations make.
void check_schema(const Database& database, std::span<const char* const> migrations);

} // namespace kvmserver::store
