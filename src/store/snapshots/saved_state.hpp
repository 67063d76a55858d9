// The saved state of a machine that can be suspended: states/<id> in the store (src/snapshot/state_file.hpp).
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "src/store/files/folder.hpp"
#include "src/store/files/lock.hpp"

namespace kvmserver::store {

// While this object lives, nobody else has one for the same id, in whichever process: a machine's state exists once.
class SavedState {
public:
    // The id of what is described in this way.
    static std::string id_of(std::string_view description);
    // nullopt if another one lives, and still does after `milliseconds`. Throws HostError.
    static std::optional<SavedState> claim(std::shared_ptr<Folder> folder, const std::string& id, int milliseconds);

    tinykvm::UniqueFd open() const; // for reading; empty: there is none
    // A new, empty file for the next state. It counts only once it is committed: its writer has synced it.
    tinykvm::UniqueFd begin();
    void commit();
    void drop();   // the new one
    void forget(); // the state itself

private:
    SavedState(std::shared_ptr<Folder> folder, const std::string& id, FileLock lock)
        : folder_(std::move(folder)), path_(path_of(id)), lock_(std::move(lock)) {}
    static std::string path_of(const std::string& id);

    std::shared_ptr<Folder> folder_;
    std::string path_;
    FileLock lock_;
};

} // namespace kvmserver::store
