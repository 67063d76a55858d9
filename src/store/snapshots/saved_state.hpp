// The saved state of a machine that can be suspended: states/<id> in the store (src/snapshot/state_file.hpp).
#pragma once
#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/store/files/folder.hpp"
#include "src/store/files/lock.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::store {

class Database;

struct StateOwner {
    std::string function;
    std::int64_t created = 0; // of the function: ms since 1970
    std::uint64_t version = 0;
    unsigned machine = 1; // of the version's, which are numbered from 1
    auto operator<=>(const StateOwner&) const = default;
};

// While this object lives, nobody else has one for the same id, in whichever process: a machine's state exists once.
class SavedState {
public:
    // The id of what is described in this way.
    static std::string id_of(std::string_view description);
    // nullopt if another one lives, and still does after `milliseconds`. Throws HostError.
    static std::optional<SavedState> claim(std::shared_ptr<Folder> folder, const std::string& id,
                                           const StateOwner& owner, int milliseconds);

    tinykvm::UniqueFd open() const; // for reading; empty: there is none
    std::uint64_t bytes() const;    // 0: there is none
    // A new, empty file for the next state. It counts only once it is committed: its writer has synced it. Or the file
    // that keep_begun() was given, if it is not larger than `most_begun` bytes and has not been given often.
    tinykvm::UniqueFd begin(std::uint64_t most_begun = 0);
    // The next state may go on from what is in the file that was begun.
    void keep_begun(tinykvm::UniqueFd file);
    void commit();
    void drop();   // the new one
    void forget(); // the state itself

private:
    SavedState(std::shared_ptr<Folder> folder, const std::string& id, const StateOwner& owner, FileLock lock);
    static std::string path_of(const std::string& id);

    std::shared_ptr<Folder> folder_;
    std::string path_;
    std::string owner_path_; // an empty file whose name tells the owner
    FileLock lock_;
    tinykvm::UniqueFd begun_;
    unsigned times_begun_ = 0;
};

struct StateFound {
    std::string id;
    StateOwner owner;
};
// The states that are there, except those that an earlier kvmserver left: they do not tell whose they are.
std::vector<StateFound> saved_states(const Folder& folder);

// Calls `each` with every one of those that no machine goes on from, and that nobody uses: its version is neither live
// nor on its way from another daemon.
void for_each_unneeded_state(const std::shared_ptr<Folder>& folder, const Database& database,
                             const std::function<void(SavedState&)>& each);

} // namespace kvmserver::store
