// Builds a root file system that holds what a plan names and nothing else.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/jail/plan.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::jail {

// An entry of the new root, by its resolved path on the host.
struct Shown {
    std::string path;
    bool write = false, folder = false;
    bool operator==(const Shown&) const = default;
};

// A place's mount, or a copy of it that is not attached yet.
struct PlaceMount {
    Shown place;
    tinykvm::UniqueFd tree;
};

bool is_folder(const std::string& path); // follows symlinks

class OwnRoot {
public:
    // Resolves the plan's places on the host and records the symlinks on the way.
    explicit OwnRoot(const Plan& plan);

    // Whether all writable places support ID-mapped mounts with `user_map`. False, with errno, if not. Call before
    // enter().
    bool can_map(int user_map) const;
    // Builds the root and does not enter it. `beneath`: that of pivot_beneath(); -1: there is none, and it is built at
    // kProc, where it covers the host's procfs. `mounts`: what is shown, as it was mounted. Not for a plan that shows
    // "/". On failure returns false with errno, and `failed` names the operation.
    bool prepare(int beneath, int user_map, std::vector<PlaceMount>& mounts, std::string& failed) const;
    // Builds the root and makes it the root of this mount namespace, whose mounts must be private. `proc` is mounted at
    // `proc_at` (kProc or kOwnProc). `prepared`: is built already and is part of this one (includes()); or null. Fails
    // as prepare() does.
    bool enter(int beneath, int user_map, int proc, const char* proc_at, const OwnRoot* prepared,
               std::string& failed) const;

    const std::vector<Shown>& shown() const { return shown_; } // parents first
    bool shows(const Shown& place) const;
    // Whether this root shows all that `other` does, in the same way.
    bool includes(const OwnRoot& other) const;

private:
    struct Link {
        std::string path, target;
        bool operator==(const Link&) const = default;
    };
    std::optional<Shown> real_place(const Place& place);
    void add(const Place& place);
    void keep_within(const Bound& bound);
    void drop_useless_links();
    std::string resolve(const std::string& path, bool& exists);
    const Shown* above(const std::string& path) const; // the nearest shown place that contains it
    bool is_hidden(const std::string& path) const;
    bool make_points(const OwnRoot* prepared, std::string& failed) const;
    bool hide(std::string& failed) const;

    std::map<std::string, bool> known_; // resolved paths, of which some lie beneath others; whether they are folders
    std::vector<Shown> shown_;
    std::vector<Link> links_;
    std::vector<std::string> folders_; // must exist, even if empty
    std::vector<std::string> hidden_;  // real paths
};

// Mount points: for a procfs, and for a process's own folder of one.
inline constexpr const char* kProc = "/proc";
inline constexpr const char* kOwnProc = "/proc/self";
inline constexpr const char* kDevices[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"};

} // namespace kvmserver::jail
