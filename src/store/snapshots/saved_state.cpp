#include "src/store/snapshots/saved_state.hpp"

#include <fcntl.h>

#include <fmt/format.h>

#include "src/common/digest.hpp"

namespace kvmserver::store {

namespace {
constexpr const char* kNew = ".new"; // of a state that is being written
}

std::string SavedState::path_of(const std::string& id) { return fmt::format("{}/{}", kSavedStates, id); }

std::string SavedState::id_of(std::string_view description) { return sha256(description).hex(); }

std::optional<SavedState> SavedState::claim(std::shared_ptr<Folder> folder, const std::string& id, int milliseconds) {
    auto lock = FileLock::exclusive_within(*folder, path_of(id) + ".lock", milliseconds);
    if (!lock)
        return std::nullopt;
    SavedState state(std::move(folder), id, *std::move(lock));
    state.drop(); // left by a daemon that died
    return state;
}

tinykvm::UniqueFd SavedState::open() const { return folder_->open_read(path_); }

tinykvm::UniqueFd SavedState::begin() {
    drop();
    return folder_->create(path_ + kNew);
}

void SavedState::commit() {
    folder_->rename(path_ + kNew, path_);
    folder_->sync_folder(kSavedStates);
}

void SavedState::drop() { folder_->remove(path_ + kNew); }

void SavedState::forget() {
    drop();
    folder_->remove(path_);
}

} // namespace kvmserver::store
