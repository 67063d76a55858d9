// The index's schema, and migrations from older ones.
#pragma once
#include <span>

#include "src/store/index/database.hpp"

namespace kvmserver::store {

extern const char* const kSchemaSql;   // schema.sql
extern const char* const kSchema2Sql;  // schema_2.sql
extern const char* const kSchema3Sql;  // schema_3.sql
extern const char* const kSchema4Sql;  // schema_4.sql
extern const char* const kSchema5Sql;  // schema_5.sql
extern const char* const kSchema6Sql;  // schema_6.sql
extern const char* const kSchema7Sql;  // schema_7.sql
extern const char* const kSchema8Sql;  // schema_8.sql
extern const char* const kSchema9Sql;  // schema_9.sql
extern const char* const kSchema10Sql; // schema_10.sql
extern const char* const kSchema11Sql; // schema_11.sql

// Element n migrates schema n to schema n + 1; schema 0 is an empty database. A released element never changes.
std::span<const char* const> all_migrations();

int schema_version(const Database& database);
// Migrates to the last schema in one transaction; checks foreign keys at its end.
void migrate(Database& database, std::span<const char* const> migrations);
// Throws IndexDamaged unless the tables are exactly those that the migrations create.
void check_schema(const Database& database, std::span<const char* const> migrations);

} // namespace kvmserver::store
