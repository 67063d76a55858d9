#include "src/store/snapshots/saved_state.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "src/common/digest.hpp"
#include "src/store/functions/names.hpp"
#include "src/store/index/database.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::store {

namespace {

constexpr const char* kNew = ".new"; // of a state that is being written
constexpr std::string_view kOf = ".of.";
constexpr std::size_t kIdLength = 64;

// "hello.1760000000000.3.1"
std::string text_of(const StateOwner& owner) {
    return fmt::format("{}.{}.{}.{}", owner.function, owner.created, owner.version, owner.machine);
}

std::optional<StateOwner> owner_in(std::string_view text) {
    StateOwner owner;
    std::size_t dot = text.find('.');
    owner.function = text.substr(0, dot);
    const auto next_number = [&](auto& number) {
        if (dot == std::string_view::npos)
            return false;
        text.remove_prefix(dot + 1);
        dot = text.find('.');
        const std::string_view digits = text.substr(0, dot);
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
        return error == std::errc() && end == digits.data() + digits.size();
    };
    if (!is_function_name(owner.function) || !next_number(owner.created) || !next_number(owner.version) ||
        !next_number(owner.machine) || dot != std::string_view::npos)
        return std::nullopt;
    return owner;
}

} // namespace

SavedState::SavedState(std::shared_ptr<Folder> folder, const std::string& id, const StateOwner& owner, FileLock lock)
    : folder_(std::move(folder)), path_(path_of(id)), owner_path_(fmt::format("{}{}{}", path_, kOf, text_of(owner))),
      lock_(std::move(lock)) {}

std::string SavedState::path_of(const std::string& id) { return fmt::format("{}/{}", kSavedStates, id); }

std::string SavedState::id_of(std::string_view description) { return sha256(description).hex(); }

std::optional<SavedState> SavedState::claim(std::shared_ptr<Folder> folder, const std::string& id,
                                            const StateOwner& owner, int milliseconds) {
    auto lock = FileLock::exclusive_within(*folder, path_of(id) + ".lock", milliseconds);
    if (!lock)
        return std::nullopt;
    SavedState state(std::move(folder), id, owner, *std::move(lock));
    state.drop(); // left by a daemon that died
    return state;
}

tinykvm::UniqueFd SavedState::open() const { return folder_->open_read(path_); }

std::uint64_t SavedState::bytes() const { return folder_->size_of(path_).value_or(0); }

tinykvm::UniqueFd SavedState::begin(std::uint64_t most_begun) {
    constexpr unsigned kMostTimes = 8; // each may add a part: kMostStateParts (src/snapshot/state_file.hpp)
    struct stat begun {};
    if (begun_ && times_begun_ < kMostTimes && ::fstat(begun_.get(), &begun) == 0 &&
        static_cast<std::uint64_t>(begun.st_size) <= most_begun) {
        ++times_begun_;
        tinykvm::UniqueFd again(::fcntl(begun_.get(), F_DUPFD_CLOEXEC, 0));
        if (!again)
            tinykvm::throw_errno("open the state of a machine");
        return again;
    }
    drop();
    folder_->open_write(owner_path_, O_CREAT);
    return folder_->create(path_ + kNew);
}

void SavedState::keep_begun(tinykvm::UniqueFd file) { begun_ = std::move(file); }

void SavedState::commit() {
    begun_.reset();
    folder_->rename(path_ + kNew, path_);
    folder_->sync_folder(kSavedStates);
}

void SavedState::drop() {
    begun_.reset();
    times_begun_ = 0;
    folder_->remove(path_ + kNew);
}

void SavedState::forget() {
    drop();
    folder_->remove(path_);
    folder_->remove(owner_path_);
}

std::vector<StateFound> saved_states(const Folder& folder) {
    std::vector<StateFound> found;
    const std::vector<std::string> names = folder.list(kSavedStates);
    for (const std::string& name : names) {
        if (name.size() <= kIdLength || !std::string_view(name).substr(kIdLength).starts_with(kOf))
            continue;
        auto owner = owner_in(std::string_view(name).substr(kIdLength + kOf.size()));
        std::string id = name.substr(0, kIdLength);
        if (owner && std::ranges::binary_search(names, id))
            found.push_back({std::move(id), *std::move(owner)});
    }
    return found;
}

void for_each_unneeded_state(const std::shared_ptr<Folder>& folder, const Database& database,
                             const std::function<void(SavedState&)>& each) {
    auto needed = database.prepare(
        "SELECT 1 FROM version v JOIN function f ON f.id = v.function WHERE f.name = ?1 AND f.created = ?2 AND "
        "v.number = ?3 AND (v.state = 'pending' OR EXISTS (SELECT 1 FROM traffic t WHERE t.function = f.id AND "
        "t.number = v.number))");
    for (const auto& [id, owner] : saved_states(*folder))
        if (needed.reset(); !needed.bind(owner.function).bind(owner.created).bind(owner.version).step())
            if (auto state = SavedState::claim(folder, id, owner, 0))
                each(*state);
}

} // namespace kvmserver::store
