// An open store, on which everything else in this folder works.
//
// Any number of processes may have a store open, and any number of threads may use one Store. It does not survive a
// fork: a child that needs the store opens it again (exec closes it).
//
// index.db is the authority on what exists. Whatever its rows name is on the disk and fsynced before the transaction
// that names it is committed. Records beside the index (FORMAT.md) hold the same data, so that a lost index can be
// rebuilt.
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

class ChunkBucket;
class SharedIndex;

struct StoreOptions {
    std::shared_ptr<FileLayer> files = real_files();
    std::span<const char* const> migrations = all_migrations();
    int busy_ms = 30'000; // timeout for locks of other processes
    // Where chunks are besides the disk (`serve --chunks`); null: nowhere.
    std::shared_ptr<ChunkBucket> bucket = nullptr;
    // The index of the cluster to which the store belongs (`serve --cluster`); null: none.
    std::shared_ptr<SharedIndex> shared = nullptr;
};

class Store {
public:
    // Creates the store if there is none, migrates an older one (and keeps a copy), and rebuilds a missing index from
    // the records. Throws UserError for a newer schema, and IndexDamaged for a damaged index.
    explicit Store(const std::filesystem::path& path, const StoreOptions& options = {});
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;

    // What opening the store had to repair, and what could not be restored.
    const Findings& notes() const { return notes_; }
    // Changes whenever another connection has changed the index (SQLite's data_version).
    std::int64_t data_version();
    // Throws as the index does that cannot be read. Does not wait for a change that is under way in this process, which
    // reads it.
    void require_readable();

    // --- for the other files of this folder

    // Exclusive use of the connection for one thread.
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
    const std::shared_ptr<ChunkBucket>& bucket() const { return bucket_; } // null: there is none
    const std::shared_ptr<SharedIndex>& shared() const { return shared_; } // null: there is none
    // Held while files get the names by which rows will refer to them. Take it before index().
    FileLock naming() { return FileLock::shared(*folder_, kSweepLock); }
    // Held while unnamed files are removed; excludes naming().
    FileLock sweeping() { return FileLock::exclusive(*folder_, kSweepLock); }

private:
    std::shared_ptr<Folder> folder_;
    const std::shared_ptr<ChunkBucket> bucket_;
    const std::shared_ptr<SharedIndex> shared_;
    Findings notes_;
    std::optional<FileLock> in_use_;
    std::mutex mutex_;
    std::optional<Database> database_;
};

} // namespace kvmserver::store
