#include "src/jail/own_root.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <sstream>

#include "src/jail/mount_calls.hpp"
#include "tinykvm/base/path_text.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::jail {

using tinykvm::cut_path;
using tinykvm::is_beneath;
using tinykvm::split_last;
using tinykvm::UniqueFd;

namespace {

constexpr unsigned kMaxLinks = 40; // as in Linux, path_resolution(7)

bool is_folder(const std::string& path) {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string link_target(const std::string& path) {
    std::string target(4096, '\0');
    const ssize_t bytes = ::readlink(path.c_str(), target.data(), target.size());
    target.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
    return target;
}

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

// Adds a place; one that is already listed becomes writable if either is.
void put(std::vector<Shown>& all, Shown place) {
    const auto there = std::ranges::find(all, place.path, &Shown::path);
    if (there != all.end())
        there->write |= place.write;
    else
        all.push_back(std::move(place));
}

// Paths that belong to the kernel, not to the host's file systems.
bool is_kernels(const std::string& path) {
    return is_beneath(path, "/proc") || is_beneath(path, "/sys") || is_beneath(path, "/dev");
}

} // namespace

OwnRoot::OwnRoot(const Plan& plan) {
    for (const std::string& path : plan.hidden) {
        bool exists = false;
        hidden_.push_back(resolve(path, exists));
    }
    links_.clear();
    for (const Place& place : plan.places)
        add(place);
    for (const Bound& bound : plan.bounds)
        keep_within(bound);
    if (!plan.bounds.empty())
        drop_useless_links();
    for (const char* const device : kDevices)
        add({device, true});
    for (const std::string& folder : plan.folders) {
        bool exists = false;
        if (std::string path = resolve(folder, exists); exists && is_folder(path))
            folders_.push_back(std::move(path));
    }
    std::ranges::sort(shown_, {}, &Shown::path);
    std::vector<Shown> needed; // a new list, because above() reads shown_
    std::ranges::copy_if(shown_, std::back_inserter(needed), [this](const Shown& place) {
        const Shown* const shows = above(place.path);
        return !is_hidden(place.path) && !(shows && shows->write >= place.write && !is_beneath(place.path, "/dev"));
    });
    shown_ = std::move(needed);
}

// nullopt: the place cannot be shown.
std::optional<Shown> OwnRoot::real_place(const Place& place) {
    bool exists = false;
    std::string real = resolve(place.path, exists);
    if (!exists) {
        // To create a file, the program needs its folder.
        real = split_last(real).first;
        if (!place.write || !is_folder(real))
            return std::nullopt;
    }
    if (real != "/" && (is_beneath(real, "/proc") || is_beneath(real, "/sys")))
        return std::nullopt; // the guest kernel provides these itself
    return Shown{real, place.write, is_folder(real)};
}

void OwnRoot::add(const Place& place) {
    if (auto real = real_place(place))
        put(shown_, *std::move(real));
}

void OwnRoot::keep_within(const Bound& bound) {
    std::vector<Shown> most, kept;
    for (const Place& place : bound)
        if (auto real = real_place(place))
            put(most, *std::move(real));
    for (const Shown& place : shown_)
        for (const Shown& each : most) {
            const bool within = is_beneath(place.path, each.path);
            if (!within && !is_beneath(each.path, place.path))
                continue;
            Shown less = within ? place : each;
            less.write = place.write && each.write;
            put(kept, std::move(less));
        }
    shown_ = std::move(kept);
}

// A link to something that is not shown would reveal its target: drop it.
void OwnRoot::drop_useless_links() {
    std::vector<Link> all = links_;
    std::erase_if(all, [this](const Link& link) {
        bool exists = false;
        const std::string real = resolve(link.path, exists);
        return std::ranges::none_of(
            shown_, [&](const Shown& place) { return is_beneath(place.path, real) || is_beneath(real, place.path); });
    });
    links_ = std::move(all);
}

// Resolves symlinks and records them in links_. Components that do not exist are kept as written.
std::string OwnRoot::resolve(const std::string& path, bool& exists) {
    std::vector<std::string> rest = cut_path(path).parts;
    std::reverse(rest.begin(), rest.end());
    std::string real = "/";
    exists = true;
    for (unsigned links = 0; !rest.empty();) {
        const std::string part = std::move(rest.back());
        rest.pop_back();
        if (part == ".")
            continue;
        if (part == "..") {
            real = split_last(real).first;
            continue;
        }
        std::string next = real;
        if (next != "/")
            next += '/';
        next += part;
        struct stat info {};
        if (::lstat(next.c_str(), &info) != 0) {
            exists = false;
            real = next;
            for (auto missing = rest.rbegin(); missing != rest.rend(); ++missing)
                real += "/" + *missing;
            return real;
        }
        if (!S_ISLNK(info.st_mode)) {
            real = next;
            continue;
        }
        const std::string target = link_target(next);
        if (++links > kMaxLinks || target.empty()) {
            exists = false;
            return next;
        }
        if (std::ranges::find(links_, next, &Link::path) == links_.end())
            links_.push_back({next, target});
        if (target.front() == '/')
            real = "/";
        auto parts = cut_path(target).parts;
        rest.insert(rest.end(), parts.rbegin(), parts.rend());
    }
    return real;
}

const Shown* OwnRoot::above(const std::string& path) const {
    const Shown* nearest = nullptr;
    for (const Shown& place : shown_)
        if (place.path != path && is_beneath(path, place.path) &&
            (!nearest || place.path.size() > nearest->path.size()))
            nearest = &place;
    return nearest;
}

bool OwnRoot::is_hidden(const std::string& path) const {
    return std::ranges::any_of(hidden_, [&](const std::string& hidden) { return is_beneath(path, hidden); });
}

namespace {

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

} // namespace

bool OwnRoot::can_map(int user_map) const {
    return std::ranges::all_of(shown_, [&](const Shown& place) {
        if (!place.write || is_beneath(place.path, "/dev"))
            return true;
        const UniqueFd tree = clone_tree(place.path.c_str(), false);
        return tree && set_attributes(tree.get(), kMapIds, user_map);
    });
}

bool OwnRoot::enter(int user_map, int proc, const char* proc_at, std::string& failed) {
    const auto fail = [&](const std::string& what) {
        failed = what;
        return false;
    };
    // All copies are taken before anything is changed. "/" is copied mount by mount, because some of its mounts may not
    // support ID mapping. In a user namespace it comes with all its mounts or not at all: the kernel locks them
    // together (mount_namespaces(7)), and nothing is ID-mapped.
    const bool one_by_one = static_cast<bool>(clone_tree("/", false));
    std::vector<std::pair<Shown, UniqueFd>> copies;
    std::vector<Shown> wanted;
    for (const Shown& place : shown_) {
        wanted.push_back(place);
        if (place.path == "/" && one_by_one)
            for (const std::string& point : mount_points())
                if (point != "/" && !is_kernels(point) && !is_hidden(point))
                    wanted.push_back({point, place.write, is_folder(point)});
    }
    const bool everything = !wanted.empty() && wanted.front().path == "/";
    const bool own_proc = std::string_view(proc_at) == kOwnProc;
    std::ranges::stable_sort(wanted, {}, [](const Shown& place) { return place.path.size(); });
    for (const Shown& place : wanted) {
        // With "/", each mount is in the list by itself.
        UniqueFd tree = copy_of(place, !everything || !one_by_one, user_map);
        if (!tree && errno != ENOENT && errno != EACCES && errno != ELOOP)
            return fail("open_tree " + place.path);
        if (tree)
            copies.emplace_back(place, std::move(tree));
    }
    static const char* const kRootOptions[] = {"size", "1m", "nr_inodes", "20k", "mode", "0755", nullptr};
    static const char* const kEmptyOptions[] = {"size", "4k", "nr_inodes", "2", "mode", "0000", nullptr};
    UniqueFd root;
    if (everything)
        root = std::move(copies.front().second);
    else if (root = make_file_system("tmpfs", kRootOptions, kNoSetuid); !root)
        return fail("mount tmpfs");
    // /proc is a folder on every host, and the host's procfs is no longer needed.
    if (!attach(root.get(), kProc))
        return fail("move_mount to /proc");
    if (::chdir(kProc) < 0)
        return fail("chdir /proc");
    const auto make_folders = [&](const std::string& path) {
        std::string way = ".";
        for (const std::string& part : cut_path(path).parts)
            if (way += "/" + part; ::mkdir(way.c_str(), 0755) < 0 && errno != EEXIST)
                return false;
        return true;
    };
    if (everything) {
        const UniqueFd devices = make_file_system("tmpfs", kRootOptions, kNoSetuid);
        if (is_folder("./dev") && (!devices || !attach(devices.get(), "./dev")))
            return fail("mount /dev");
        if (!one_by_one && is_folder("./sys")) { // it came along
            const UniqueFd nothing = make_file_system("tmpfs", kEmptyOptions, kReadOnly | kNoSetuid | kNoDevices);
            if (!nothing || !attach(nothing.get(), "./sys"))
                return fail("mount /sys");
        }
        const UniqueFd processes = own_proc ? make_file_system("tmpfs", kRootOptions, kNoSetuid) : UniqueFd();
        if (processes && !attach(processes.get(), "./proc"))
            return fail("mount /proc");
    }
    for (const Shown& place : shown_) { // make the mount points
        if (above(place.path) && !is_beneath(place.path, "/dev"))
            continue;
        if (place.path == "/")
            continue;
        if (!make_folders(place.folder ? place.path : split_last(place.path).first))
            return fail("mkdir " + place.path);
        if (!place.folder && !UniqueFd(::open(("." + place.path).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0444)))
            return fail("make " + place.path);
    }
    if (!everything) {
        for (const std::string& folder : folders_)
            if (!above(folder) && !make_folders(folder))
                return fail("mkdir " + folder);
        for (const Link& link : links_)
            if (!above(link.path) && !is_kernels(link.path) &&
                (!make_folders(split_last(link.path).first) ||
                 (::symlink(link.target.c_str(), ("." + link.path).c_str()) < 0 && errno != EEXIST)))
                return fail("symlink " + link.path);
    }
    if ((!everything || own_proc) && !make_folders(proc_at))
        return fail(std::string("mkdir ") + proc_at);
    for (auto& [place, tree] : copies)
        if (tree && !attach(tree.get(), ("." + place.path).c_str()) && errno != ENOENT)
            return fail("move_mount " + place.path);
    for (const std::string& hidden : hidden_) {
        if (::access(("." + hidden).c_str(), F_OK) != 0)
            continue;
        const UniqueFd cover = is_folder("." + hidden)
                                   ? make_file_system("tmpfs", kEmptyOptions, kReadOnly | kNoSetuid | kNoDevices)
                                   : clone_tree("/dev/null", false);
        if (!cover || !set_attributes(cover.get(), kReadOnly | kNoDevices) ||
            !attach(cover.get(), ("." + hidden).c_str()))
            return fail("hide " + hidden);
    }
    if (proc >= 0 && !attach(proc, (std::string(".") + proc_at).c_str()))
        return fail(std::string("move_mount to ") + proc_at);
    if (!pivot_to("."))
        return fail("pivot_root");
    if (!everything) {
        const UniqueFd self(::open("/", O_PATH | O_CLOEXEC | O_DIRECTORY));
        // Only the root mount: the mounts beneath it have their own attributes.
        if (!set_read_only(self.get()))
            return fail("remount /");
    }
    return true;
}

} // namespace kvmserver::jail
