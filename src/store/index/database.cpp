#include "src/store/index/database.hpp"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <cerrno>

#include "src/store/errors.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::store {

// --- Statement

void Statement::Free::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Statement& Statement::bind(std::int64_t value) {
    sqlite3_bind_int64(statement_.get(), ++bound_, value);
    return *this;
}

Statement& Statement::bind(std::string_view text) {
    const char* data = text.empty() ? "" : text.data(); // a null pointer would bind NULL
    const int code = sqlite3_bind_text64(statement_.get(), ++bound_, data, text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
    if (code != SQLITE_OK)
        database_->fail(code, "bind");
    return *this;
}

Statement& Statement::bind(const Digest& digest) {
    const int code = sqlite3_bind_blob(statement_.get(), ++bound_, digest.bytes.data(),
                                       static_cast<int>(digest.bytes.size()), SQLITE_TRANSIENT);
    if (code != SQLITE_OK)
        database_->fail(code, "bind");
    return *this;
}

Statement& Statement::bind(std::optional<std::int64_t> value) {
    if (value)
        return bind(*value);
    sqlite3_bind_null(statement_.get(), ++bound_);
    return *this;
}

bool Statement::step() {
    const int code = sqlite3_step(statement_.get());
    if (code != SQLITE_ROW && code != SQLITE_DONE)
        database_->fail(code, sqlite3_sql(statement_.get()));
    return code == SQLITE_ROW;
}

void Statement::run() {
    while (step()) {
    }
    reset();
}

void Statement::reset() {
    sqlite3_reset(statement_.get());
    bound_ = 0;
}

void Statement::expect(int column, int type) const {
    if (sqlite3_column_type(statement_.get(), column) != type)
        database_->damaged(
            fmt::format("a value of the wrong kind in column {} of \"{}\"", column, sqlite3_sql(statement_.get())));
}

std::int64_t Statement::integer(int column) const {
    expect(column, SQLITE_INTEGER);
    return sqlite3_column_int64(statement_.get(), column);
}

std::uint64_t Statement::natural(int column) const {
    const std::int64_t value = integer(column);
    if (value < 0)
        database_->damaged(
            fmt::format("a negative number in column {} of \"{}\"", column, sqlite3_sql(statement_.get())));
    return static_cast<std::uint64_t>(value);
}

std::string Statement::text(int column) const {
    expect(column, SQLITE_TEXT);
    const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
    return data ? std::string(data, static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))) : "";
}

Digest Statement::digest(int column) const {
    expect(column, SQLITE_BLOB);
    Digest digest;
    const auto* data = static_cast<const std::uint8_t*>(sqlite3_column_blob(statement_.get(), column));
    if (!data || sqlite3_column_bytes(statement_.get(), column) != static_cast<int>(digest.bytes.size()))
        database_->damaged(fmt::format("a digest of the wrong length in \"{}\"", sqlite3_sql(statement_.get())));
    std::copy_n(data, digest.bytes.size(), digest.bytes.begin());
    return digest;
}

bool Statement::is_null(int column) const { return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL; }

// --- Database

void Database::Free::operator()(sqlite3* db) const { sqlite3_close_v2(db); }

Database::Database(const std::string& path, int busy_ms) : path_(path) {
    sqlite3* db = nullptr;
    const int code = sqlite3_open_v2(path.c_str(), &db,
                                     SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE, nullptr);
    db_.reset(db);
    if (code != SQLITE_OK)
        fail(code, "open");
    sqlite3_extended_result_codes(db, 1);
    sqlite3_busy_timeout(db, busy_ms);
    // The file is untrusted: its schema must not run code, and its pages are checked as they are read.
    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    execute("PRAGMA cell_size_check = ON; PRAGMA foreign_keys = ON; PRAGMA synchronous = FULL");
}

Statement Database::prepare(std::string_view sql) const {
    sqlite3_stmt* statement = nullptr;
    const int code = sqlite3_prepare_v2(db_.get(), sql.data(), static_cast<int>(sql.size()), &statement, nullptr);
    if (code != SQLITE_OK)
        fail(code, sql);
    return Statement(*this, statement);
}

void Database::execute(const std::string& sql) {
    if (const int code = sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, nullptr); code != SQLITE_OK)
        fail(code, sql);
}

std::int64_t Database::number(std::string_view sql) const {
    Statement statement = prepare(sql);
    if (!statement.step())
        damaged(fmt::format("no answer to \"{}\"", sql));
    return statement.integer(0);
}

std::int64_t Database::last_id() const { return sqlite3_last_insert_rowid(db_.get()); }
std::int64_t Database::changes() const { return sqlite3_changes64(db_.get()); }

void Database::damaged(const std::string& why) const { throw IndexDamaged(path_, why); }

void Database::fail(int code, std::string_view what) const {
    const std::string said = db_ ? sqlite3_errmsg(db_.get()) : sqlite3_errstr(code);
    const std::string shown = tinykvm::brief(path_);
    switch (code & 0xff) {
    case SQLITE_NOMEM: throw std::bad_alloc();
    case SQLITE_FULL: throw HostError(ENOSPC, "write " + shown);
    case SQLITE_IOERR: throw HostError(EIO, fmt::format("{} ({}) {}", said, code, shown));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        throw UserError(ExitCode::unreachable,
                        fmt::format("{}: another process is writing to it and does not end: try again later", shown));
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH:
        throw UserError(ExitCode::not_permitted, fmt::format("{}: {}: run as the store's owner", shown, said));
    default: // corrupt, not a database, no such table, or a constraint that our code never violates
        damaged(fmt::format("{} (in \"{}\")", said, what.substr(0, 60)));
    }
}

// --- Transaction

Transaction::Transaction(Database& database, Kind kind) : database_(database) {
    database_.execute(kind == Kind::write ? "BEGIN IMMEDIATE" : "BEGIN");
}

Transaction::~Transaction() { roll_back(); }

void Transaction::commit() {
    database_.execute("COMMIT");
    open_ = false;
}

void Transaction::roll_back() noexcept {
    if (!open_)
        return;
    open_ = false;
    // Some errors roll back automatically; ROLLBACK then fails, which is fine.
    sqlite3_exec(database_.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
}

} // namespace kvmserver::store
