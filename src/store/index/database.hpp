// Owning wrappers of SQLite. A Database is one connection, not to be used by two threads at once (store.hpp takes care
// of that).
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "src/common/digest.hpp"

struct sqlite3;
struct sqlite3_stmt;

namespace kvmserver::store {

class Database;

// Columns are checked for their type: an unexpected value throws IndexDamaged.
class Statement {
public:
    Statement(Statement&&) noexcept = default;
    // Binds the next parameter.
    Statement& bind(std::int64_t value);
    Statement& bind(std::uint64_t value) { return bind(static_cast<std::int64_t>(value)); }
    Statement& bind(std::string_view text);
    Statement& bind(const char* text) { return bind(std::string_view(text)); }
    Statement& bind(const std::string& text) { return bind(std::string_view(text)); }
    Statement& bind(const Digest& digest);
    Statement& bind(std::optional<std::int64_t> value); // nullopt binds NULL

    bool step();  // returns whether there is a row
    void run();   // for a statement without rows; resets it for the next bind()
    void reset(); // for the next bind()

    std::int64_t integer(int column) const;
    std::uint64_t natural(int column) const; // must not be negative
    std::string text(int column) const;
    Digest digest(int column) const;
    bool is_null(int column) const;

private:
    friend class Database;
    struct Free {
        void operator()(sqlite3_stmt* statement) const;
    };
    Statement(const Database& database, sqlite3_stmt* statement) : database_(&database), statement_(statement) {}
    void expect(int column, int type) const;
    const Database* database_;
    std::unique_ptr<sqlite3_stmt, Free> statement_;
    int bound_ = 0;
};

class Database {
public:
    // Opens an existing file, or ":memory:". Errors name `path`.
    Database(const std::string& path, int busy_ms);

    Statement prepare(std::string_view sql) const;
    void execute(const std::string& sql);            // may hold several statements
    std::int64_t number(std::string_view sql) const; // the only value of the only row
    std::int64_t last_id() const;                    // rowid of the last INSERT
    std::int64_t changes() const;                    // rows that the last statement changed
    sqlite3* handle() const { return db_.get(); }
    const std::string& path() const { return path_; }

    // Throws the error for an SQLite result code: UserError (busy, not permitted), HostError, std::bad_alloc, or
    // IndexDamaged, which quotes `what`.
    [[noreturn]] void fail(int code, std::string_view what) const;
    [[noreturn]] void damaged(const std::string& why) const;

private:
    struct Free {
        void operator()(sqlite3* db) const;
    };
    std::string path_;
    std::unique_ptr<sqlite3, Free> db_;
};

// Rolled back unless committed.
class Transaction {
public:
    enum class Kind { read, write }; // a write transaction first waits for others
    explicit Transaction(Database& database, Kind kind = Kind::write);
    ~Transaction();
    Transaction(const Transaction&) = delete;
    Transaction& operator=(const Transaction&) = delete;
    void commit();
    void roll_back() noexcept;

private:
    Database& database_;
    bool open_ = true;
};

} // namespace kvmserver::store
