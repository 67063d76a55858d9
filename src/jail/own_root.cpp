#include "src/jail/own_root.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "tinykvm/base/path_text.hpp"

namespace kvmserver::jail {

using tinykvm::cut_path;
using tinykvm::is_beneath;
using tinykvm::split_last;

namespace {

constexpr unsigned kMaxLinks = 40; // as in Linux, path_resolution(7)

std::string link_target(const std::string& path) {
    std::string target(4096, '\0');
    const ssize_t bytes = ::readlink(path.c_str(), target.data(), target.size());
    target.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
    return target;
}

// Adds a place; one that is already listed becomes writable if either is.
void put(std::vector<Shown>& all, Shown place) {
    const auto there = std::ranges::find(all, place.path, &Shown::path);
    if (there != all.end())
        there->write |= place.write;
    else
        all.push_back(std::move(place));
}

} // namespace

bool is_folder(const std::string& path) {
    struct stat info {};
    return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

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
    const auto known = known_.find(real);
    return Shown{real, place.write, known == known_.end() ? is_folder(real) : known->second};
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
        if (known_.contains(next)) {
            real = next;
            continue;
        }
        struct stat info {};
        if (::lstat(next.c_str(), &info) != 0) {
            exists = false;
            real = next;
            for (auto missing = rest.rbegin(); missing != rest.rend(); ++missing)
                real += "/" + *missing;
            return real;
        }
        if (!S_ISLNK(info.st_mode)) {
            known_.emplace(next, S_ISDIR(info.st_mode));
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

} // namespace kvmserver::jail
