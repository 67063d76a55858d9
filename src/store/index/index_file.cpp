#include "src/store/index/index_file.hpp"

#include <fmt/format.h>
#include <sqlite3.h>

#include <memory>

#include "src/common/random_hex.hpp"
#include "src/store/errors.hpp"
#include "src/store/index/migrations.hpp"

namespace kvmserver::store {

IndexLook IndexFile::look() const {
    if (!folder_.size_of(kIndex))
        return {};
    const Database database(folder_.path_of(kIndex), busy_ms_);
    const int version = schema_version(database);
    const int newest = static_cast<int>(migrations_.size());
    if (version <= 0)
        database.damaged("it is not the index of a store");
    if (version > newest)
        return {IndexState::newer, version};
    check_schema(database, migrations_.first(static_cast<std::size_t>(version)));
    return {version < newest ? IndexState::older : IndexState::current, version};
}

Database IndexFile::open() const { return Database(folder_.path_of(kIndex), busy_ms_); }

std::string IndexFile::begin_new() {
    std::string path = fmt::format("{}/index-{}", kTmp, random_hex(8));
    // Created here with a private mode: SQLite would create it readable for others, and its WAL takes over the mode.
    { const auto file = folder_.create(path); }
    Database database = open_new(path);
    database.execute("PRAGMA journal_mode = WAL");
    migrate(database, migrations_);
    return path;
}

Database IndexFile::open_new(const std::string& path) const { return Database(folder_.path_of(path), busy_ms_); }

void IndexFile::publish_new(const std::string& path) {
    folder_.sync(folder_.open_write(path).get(), path);
    // A log of the previous index would be applied to the new one.
    for (const char* rest : {"-wal", "-shm", "-journal"})
        folder_.remove(std::string(kIndex) + rest);
    folder_.rename(path, kIndex);
    folder_.sync_folder(".");
}

std::string IndexFile::migrate_older() {
    Database database = open();
    std::string copy = fmt::format("{}.v{}.bak", kIndex, schema_version(database));
    const std::string unnamed = fmt::format("{}/copy-{}", kTmp, random_hex(8));
    { const auto file = folder_.create(unnamed); }
    {
        const Database target(folder_.path_of(unnamed), busy_ms_);
        const std::unique_ptr<sqlite3_backup, int (*)(sqlite3_backup*)> backup(
            sqlite3_backup_init(target.handle(), "main", database.handle(), "main"), sqlite3_backup_finish);
        const int code = backup ? sqlite3_backup_step(backup.get(), -1) : sqlite3_errcode(target.handle());
        if (code != SQLITE_DONE)
            target.fail(code, "copy");
    }
    folder_.sync(folder_.open_write(unnamed).get(), unnamed);
    folder_.rename(unnamed, copy);
    folder_.sync_folder(".");
    migrate(database, migrations_);
    return copy;
}

std::string IndexFile::set_aside() {
    std::string name;
    for (int n = 1; name.empty() || folder_.size_of(name); ++n)
        name = fmt::format("{}.damaged-{}", kIndex, n);
    for (const char* rest : {"-wal", "-shm", "-journal"}) // kept together with the index, which goes last
        if (folder_.size_of(std::string(kIndex) + rest))
            folder_.rename(std::string(kIndex) + rest, name + rest);
    folder_.rename(kIndex, name);
    folder_.sync_folder(".");
    return name;
}

void IndexFile::refuse_newer(int version) const {
    throw UserError(ExitCode::failure,
                    fmt::format("{}: schema {} was made by a newer kvmserver (this one knows up to {}): use that one, "
                                "or a copy that it kept (index.db.v{}.bak)",
                                folder_.full(kIndex), version, migrations_.size(), migrations_.size()));
}

} // namespace kvmserver::store
