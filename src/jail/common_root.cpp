#include "src/jail/common_root.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "src/jail/mount_calls.hpp"

namespace kvmserver::jail {

CommonRoot::Identity CommonRoot::file_at(const char* path) {
    struct stat info {};
    return ::stat(path, &info) == 0 ? Identity{info.st_dev, info.st_ino} : Identity{};
}

std::unique_ptr<CommonRoot> CommonRoot::make(const std::vector<std::string>& places, int beneath, int user_map) {
    Plan plan;
    for (const std::string& path : places)
        add_place(plan, path, false);
    std::unique_ptr<CommonRoot> made(new CommonRoot(plan, user_map >= 0));
    made->mount_table_.reset(::open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC));
    if (!made->mount_table_)
        return nullptr;
    const std::uint64_t procfs = file_at(kProc).device;
    if (!made->build(beneath, user_map)) {
        if (beneath >= 0 || file_at(kProc).device != procfs)
            (void)remove(beneath);
        return nullptr;
    }
    (void)made->mounts_changed(); // from now on
    return made;
}

bool CommonRoot::build(int beneath, int user_map) {
    std::vector<PlaceMount> mounts;
    std::string failed;
    if (!root_.prepare(beneath, user_map, mounts, failed) || mounts.size() != root_.shown().size())
        return false;
    rules_ = PathRules::make();
    for (const auto& [place, tree] : mounts) {
        struct stat info {};
        if (::fstat(tree.get(), &info) != 0)
            return false;
        files_.emplace_back(place.path, Identity{info.st_dev, info.st_ino});
        if (rules_ && !rules_->add(place, tree.get()))
            rules_.reset();
    }
    return true;
}

// Since the last call.
bool CommonRoot::mounts_changed() {
    pollfd table{mount_table_.get(), POLLPRI, 0};
    return ::poll(&table, 1, 0) != 0;
}

bool CommonRoot::serves(const OwnRoot& wanted, bool mapped) {
    return mapped == mapped_ && !mounts_changed() && wanted.includes(root_) &&
           std::ranges::all_of(files_, [](const auto& file) { return file_at(file.first.c_str()) == file.second; });
}

bool CommonRoot::remove(int beneath) {
    if (beneath < 0)
        return ::umount2(kProc, MNT_DETACH) == 0;
    return ::fchdir(beneath) == 0 && ::umount2(kStand, MNT_DETACH) == 0 && ::chdir("/") == 0;
}

} // namespace kvmserver::jail
