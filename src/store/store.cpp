#include "src/store/store.hpp"

#include <fmt/format.h>

#include "src/store/errors.hpp"
#include "src/store/index/index_file.hpp"
#include "src/store/index/rebuild.hpp"

namespace kvmserver::store {

Store::Store(const std::filesystem::path& path, const StoreOptions& options)
    : bucket_(options.bucket), shared_(options.shared) {
    Folder::make(path, *options.files);
    folder_ = std::make_shared<Folder>(path, options.files);
    IndexFile file(*folder_, options.migrations, options.busy_ms);
    for (;;) {
        in_use_.emplace(FileLock::shared(*folder_, kIndexLock));
        const IndexLook look = file.look();
        if (look.state == IndexState::newer)
            file.refuse_newer(look.version);
        if (look.state == IndexState::current)
            break;
        in_use_.reset(); // otherwise two processes would wait for each other's shared lock for ever
        const auto alone = FileLock::exclusive_within(*folder_, kIndexLock, options.busy_ms);
        if (!alone)
            throw UserError(
                ExitCode::conflict,
                fmt::format("{}: it must be {} first, but other processes use the store: stop them and try again",
                            folder_->full(kIndex), look.state == IndexState::older ? "migrated" : "made anew"));
        const IndexLook again = file.look(); // another process may have done it meanwhile
        if (again.state == IndexState::older)
            notes_.push_back(
                {Finding::Kind::repaired,
                 fmt::format("{}: migrated from schema {} to {}; a copy is kept in {}", folder_->full(kIndex),
                             again.version, options.migrations.size(), file.migrate_older())});
        if (again.state == IndexState::absent)
            rebuild_index(*folder_, file, notes_);
    }
    database_.emplace(file.open());
}

std::int64_t Store::data_version() { return index()->number("PRAGMA data_version"); }

void Store::require_readable() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock)
        (void)database_->number("PRAGMA data_version");
}

} // namespace kvmserver::store
