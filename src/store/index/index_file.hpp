// The file index.db as a whole: what state it is in, making it, migrating it. All but look() need index.lock
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

    // Throws IndexDamaged.
    IndexLook look() const;
    Database open() const;

    // A new one is filled under a name of its own and then takes the place of index.db, whole or not at all.
    std::string begin_new(); // the path below the store of an index without rows
    Database open_new(const std::string& path) const;
    void publish_new(const std::string& path); // nobody has it open

    // Keeps a copy, index.db.vN.bak. Returns its name.
    std::string migrate_older();
    // Moves a damaged index aside. Returns where to.
    std::string set_aside();

    // For a newer schema than this program knows.
    [[noreturn]] void refuse_newer(int version) const;

private:
    Folder& folder_;
    std::span<const char* const> migrations_;
    int busy_ms_;
};

} // namespace kvmserver::store
