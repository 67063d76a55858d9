// The file index.db as a whole: its state, creation and migration. All functions except look() require index.lock to be
// held exclusively.
#pragma once
#include <span>
#include <string>

#include "src/store/files/folder.hpp"
#include "src/store/index/database.hpp"

namespace kvmserver::store {

enum class IndexState { current, absent, older, newer };

struct IndexLook {
    IndexState state = IndexState::absent;
    int version = 0;
};

class IndexFile {
public:
    IndexFile(Folder& folder, std::span<const char* const> migrations, int busy_ms)
        : folder_(folder), migrations_(migrations), busy_ms_(busy_ms) {}

    // The state of index.db. Throws IndexDamaged.
    IndexLook look() const;
    Database open() const;

    // A new index is filled under a temporary name and then atomically replaces index.db.
    std::string begin_new(); // creates an index without rows; returns its path in the store
    Database open_new(const std::string& path) const;
    void publish_new(const std::string& path); // must not be open any more

    // Migrates index.db to the newest schema. Keeps a copy of the old one, index.db.vN.bak, and returns its name.
    std::string migrate_older();
    // Renames a damaged index and returns the new name.
    std::string set_aside();

    // Throws UserError: the schema is newer than this program.
    [[noreturn]] void refuse_newer(int version) const;

private:
    Folder& folder_;
    std::span<const char* const> migrations_;
    int busy_ms_;
};

} // namespace kvmserver::store
