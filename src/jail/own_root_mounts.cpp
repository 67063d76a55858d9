#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/jail/mount_calls.hpp"
#include "src/jail/own_root.hpp"
#include "tinykvm/base/path_text.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::jail {

using tinykvm::cut_path;
using tinykvm::is_beneath;
using tinykvm::split_last;
using tinykvm::UniqueFd;

namespace {

const char* const kRootOptions[] = {"size", "1m", "nr_inodes", "20k", "mode", "0755", nullptr};
const char* const kEmptyOptions[] = {"size", "4k", "nr_inodes", "2", "mode", "0000", nullptr};

// The host's mount points, parents first, from mountinfo (proc(5)): the fifth field is the path, with special
// characters in octal.
std::vector<std::string> mount_points() {
    std::ifstream file("/proc/self/mountinfo");
    std::vector<std::string> points;
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string word;
        for (int i = 0; i < 5; ++i)
            words >> word;
        std::string path;
        for (std::size_t i = 0; i < word.size(); ++i)
            if (word[i] == '\\' && i + 3 < word.size()) {
                path += static_cast<char>(std::stoi(word.substr(i + 1, 3), nullptr, 8));
                i += 3;
            } else {
                path += word[i];
            }
        points.push_back(std::move(path));
    }
    return points;
}

// Paths that belong to the kernel, not to the host's file systems.
bool is_kernels(const std::string& path) {
    return is_beneath(path, "/proc") || is_beneath(path, "/sys") || is_beneath(path, "/dev");
}

bool failure(std::string& failed, const std::string& what) {
    failed = what;
    return false;
}

// A detached copy of a place with the mount attributes that it gets in the new root.
UniqueFd copy_of(const Shown& place, bool all, int user_map) {
    UniqueFd tree = clone_tree(place.path.c_str(), all);
    if (!tree)
        return tree;
    std::uint64_t attributes = kNoSetuid;
    if (!place.write)
        attributes |= kReadOnly;
    if (!is_beneath(place.path, "/dev"))
        attributes |= kNoDevices;
    if (user_map >= 0 && set_attributes(tree.get(), attributes | kMapIds, user_map))
        return tree;
    if (!set_attributes(tree.get(), attributes))
        tree.reset();
    return tree;
}

// Of places that can be reached. `all`: including the mounts beneath them.
bool take_copies(std::vector<Shown> places, bool all, int user_map, std::vector<PlaceMount>& copies,
                 std::string& failed) {
    std::ranges::stable_sort(places, {}, [](const Shown& place) { return place.path.size(); });
    for (const Shown& place : places) {
        UniqueFd tree = copy_of(place, all, user_map);
        if (!tree && errno != ENOENT && errno != EACCES && errno != ELOOP)
            return failure(failed, "open_tree " + place.path);
        if (tree)
            copies.push_back({place, std::move(tree)});
    }
    return true;
}

// The rest works in the new root, which is the working folder.

bool go_to_root(int beneath, std::string& failed) {
    const bool done = beneath < 0 ? ::chdir(kProc) == 0 : ::fchdir(beneath) == 0 && ::chdir(kStand) == 0;
    return done || failure(failed, "chdir to the new root");
}

// /proc is a folder on every host, and the host's procfs is no longer needed.
bool begin_root(int root, int beneath, std::string& failed) {
    if (!(beneath < 0 ? attach(root, kProc) : attach(root, kStand, beneath)))
        return failure(failed, "move_mount of the new root");
    return go_to_root(beneath, failed);
}

bool make_folders(const std::string& path) {
    std::string way = ".";
    for (const std::string& part : cut_path(path).parts)
        if (way += "/" + part; ::mkdir(way.c_str(), 0755) < 0 && errno != EEXIST)
            return false;
    return true;
}

bool attach_copies(const std::vector<PlaceMount>& copies, std::string& failed) {
    for (const auto& [place, tree] : copies)
        if (!attach(tree.get(), ("." + place.path).c_str()) && errno != ENOENT)
            return failure(failed, "move_mount " + place.path);
    return true;
}

// What of the whole host's file system is not shown: devices, and the kernel's own.
bool cover_kernels(bool one_by_one, bool own_proc, std::string& failed) {
    const UniqueFd devices = make_file_system("tmpfs", kRootOptions, kNoSetuid);
    if (is_folder("./dev") && (!devices || !attach(devices.get(), "./dev")))
        return failure(failed, "mount /dev");
    if (!one_by_one && is_folder("./sys")) { // it came along
        const UniqueFd nothing = make_file_system("tmpfs", kEmptyOptions, kReadOnly | kNoSetuid | kNoDevices);
        if (!nothing || !attach(nothing.get(), "./sys"))
            return failure(failed, "mount /sys");
    }
    const UniqueFd processes = own_proc ? make_file_system("tmpfs", kRootOptions, kNoSetuid) : UniqueFd();
    return !processes || attach(processes.get(), "./proc") || failure(failed, "mount /proc");
}

} // namespace

bool OwnRoot::shows(const Shown& place) const { return std::ranges::find(shown_, place) != shown_.end(); }

bool OwnRoot::includes(const OwnRoot& other) const {
    return std::ranges::all_of(other.shown_, [&](const Shown& place) { return shows(place); }) &&
           std::ranges::all_of(other.links_,
                               [&](const Link& link) { return std::ranges::find(links_, link) != links_.end(); });
}

bool OwnRoot::can_map(int user_map) const {
    return std::ranges::all_of(shown_, [&](const Shown& place) {
        if (!place.write || is_beneath(place.path, "/dev"))
            return true;
        const UniqueFd tree = clone_tree(place.path.c_str(), false);
        return tree && set_attributes(tree.get(), kMapIds, user_map);
    });
}

// Mount points, and links, but for what is beneath something that is shown, and what `prepared` has.
bool OwnRoot::make_points(const OwnRoot* prepared, std::string& failed) const {
    for (const Shown& place : shown_) {
        if ((above(place.path) && !is_beneath(place.path, "/dev")) || (prepared && prepared->shows(place)))
            continue;
        if (place.path == "/")
            continue;
        if (!make_folders(place.folder ? place.path : split_last(place.path).first))
            return failure(failed, "mkdir " + place.path);
        if (!place.folder && !UniqueFd(::open(("." + place.path).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0444)))
            return failure(failed, "make " + place.path);
    }
    if (!shown_.empty() && shown_.front().path == "/")
        return true;
    for (const std::string& folder : folders_)
        if (!above(folder) && !make_folders(folder))
            return failure(failed, "mkdir " + folder);
    for (const Link& link : links_)
        if (!above(link.path) && !is_kernels(link.path) &&
            !(prepared && std::ranges::find(prepared->links_, link) != prepared->links_.end()) &&
            (!make_folders(split_last(link.path).first) ||
             (::symlink(link.target.c_str(), ("." + link.path).c_str()) < 0 && errno != EEXIST)))
            return failure(failed, "symlink " + link.path);
    return true;
}

bool OwnRoot::hide(std::string& failed) const {
    for (const std::string& hidden : hidden_) {
        if (::access(("." + hidden).c_str(), F_OK) != 0)
            continue;
        const UniqueFd cover = is_folder("." + hidden)
                                   ? make_file_system("tmpfs", kEmptyOptions, kReadOnly | kNoSetuid | kNoDevices)
                                   : clone_tree("/dev/null", false);
        if (!cover || !set_attributes(cover.get(), kReadOnly | kNoDevices) ||
            !attach(cover.get(), ("." + hidden).c_str()))
            return failure(failed, "hide " + hidden);
    }
    return true;
}

bool OwnRoot::prepare(int beneath, int user_map, std::vector<PlaceMount>& mounts, std::string& failed) const {
    if (!take_copies(shown_, true, user_map, mounts, failed))
        return false;
    for (const auto& [place, tree] : mounts)
        if (!set_private(tree.get()))
            return failure(failed, "mount_setattr " + place.path);
    const UniqueFd root = make_file_system("tmpfs", kRootOptions, kNoSetuid);
    if (!root)
        return failure(failed, "mount tmpfs");
    if (!begin_root(root.get(), beneath, failed))
        return false;
    const bool made = make_points(nullptr, failed) && attach_copies(mounts, failed);
    const int error = errno;
    if (::chdir("/") < 0)
        return failure(failed, "chdir /");
    errno = error;
    return made;
}

bool OwnRoot::enter(int beneath, int user_map, int proc, const char* proc_at, const OwnRoot* prepared,
                    std::string& failed) const {
    // All copies are taken before anything is changed. "/" is copied mount by mount, because some of its mounts may not
    // support ID mapping. In a user namespace it comes with all its mounts or not at all: the kernel locks them
    // together (mount_namespaces(7)), and nothing is ID-mapped.
    const bool everything = !shown_.empty() && shown_.front().path == "/";
    const bool one_by_one = everything && clone_tree("/", false);
    std::vector<Shown> wanted;
    for (const Shown& place : shown_) {
        if (prepared && prepared->shows(place))
            continue;
        wanted.push_back(place);
        if (place.path == "/" && one_by_one)
            for (const std::string& point : mount_points())
                if (point != "/" && !is_kernels(point) && !is_hidden(point))
                    wanted.push_back({point, place.write, is_folder(point)});
    }
    std::vector<PlaceMount> copies;
    if (!take_copies(std::move(wanted), !one_by_one, user_map, copies, failed))
        return false;
    const bool own_proc = std::string_view(proc_at) == kOwnProc;
    if (prepared) {
        if (!go_to_root(beneath, failed))
            return false;
    } else {
        UniqueFd root;
        if (everything)
            root = std::move(copies.front().tree);
        else if (root = make_file_system("tmpfs", kRootOptions, kNoSetuid); !root)
            return failure(failed, "mount tmpfs");
        if (!begin_root(root.get(), beneath, failed))
            return false;
    }
    if (everything && !cover_kernels(one_by_one, own_proc, failed))
        return false;
    if (everything)
        copies.erase(copies.begin());
    if (!make_points(prepared, failed))
        return false;
    if ((!everything || own_proc) && !make_folders(proc_at))
        return failure(failed, std::string("mkdir ") + proc_at);
    if (!attach_copies(copies, failed) || !hide(failed))
        return false;
    if (proc >= 0 && !attach(proc, (std::string(".") + proc_at).c_str()))
        return failure(failed, std::string("move_mount to ") + proc_at);
    if (beneath < 0 ? !pivot_to(".") : !enter_beneath(beneath))
        return failure(failed, "pivot_root");
    if (!everything) {
        const UniqueFd self(::open("/", O_PATH | O_CLOEXEC | O_DIRECTORY));
        // Only the root mount: the mounts beneath it have their own attributes.
        if (!set_read_only(self.get()))
            return failure(failed, "remount /");
    }
    return true;
}

} // namespace kvmserver::jail
