// An open store. Everything else in this folder works on one of these.
//
// Any number of processes may have a store open, and any number of threads may use one Store. It does not
// survive a fork: a child that needs the store opens it again (exec closes it).
//
// Who wins over whom: index.db is the authority on what there is. What its rows name is on the disk, fsynced,
// before the transaction that names it. Records beside it (FORMAT.md) say the same, so that a lost index can
// be rebuilt.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/store/files/file_layer.hpp"
#include "src/store/files/folder.hpp"
#include "src/store/files/lock.hpp"
#include "src/store/index/database.hpp"
#include "src/store/index/migrations.hpp"
#include "src/store/report.hpp"

namespace kvmserver::store {

struct StoreOptions {
    std::shared_ptr<FileLayer> files = real_files();
    std::span<const char* const> migrations = all_migrations();
    int busy_ms = 30'000; // how long to wait for other processes before giving up
};

class Store {
public:
    // Makes the store when there is none; migrates an older one (a copy is kept); rebuilds a missing index
    // from the records. Throws UserError for a newer schema and IndexDamaged for an index that is none.
    explicit Store(const std::filesystem::path& path, const StoreOptions& options = {});
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;

    // What opening it had to mend, and what that could not bring back.
    const Findings& notes() const { return notes_; }
    // Another number than last time: some process changed the index since.
    std::int64_t data_version();

    // --- for the other files of this folder

    // The connection, for one thread at a time.
    class Index {
    public:
        explicit Index(Store& store) : lock_(store.mutex_), database_(&*store.database_) {}
        Database& operator*() const { return *database_; }
        Database* operator->() const { return database_; }

    private:
        std::unique_lock<std::mutex> lock_;
        Database* database_;
    };
    Index index() { return Index(*this); }
    Folder& folder() const { return *folder_; }
    const std::shared_ptr<Folder>& shared_folder() const { return folder_; }
    // While files are given the names that rows will know them by; before the index is locked.
    FileLock naming() { return FileLock::shared(*folder_, kSweepLock); }
    // While unnamed files are removed: nobody is naming() meanwhile.
    FileLock sweeping() { return FileLock::exclusive(*folder_, kSweepLock); }

private:
    std::shared_ptr<Folder> folder_;
    Findings notes_;
    std::optional<FileLock> in_use_;
    std::mutex mutex_;
    std::optional<Database> database_;
};

} // namespace kvmserver::store
