// Builds a root file system that holds what a plan names and nothing else.
#pragma once
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
};

class OwnRoot {
public:
    // Resolves the plan's places on the host and records the symlinks on the way.
    explicit OwnRoot(const Plan& plan);

    // Whether all writable places support ID-mapped mounts with `user_map`. False, with errno, if not. Call before
    // enter().
    bool can_map(int user_map) const;
    // Builds the root and makes it the root of this mount namespace, whose mounts must be private. `proc` is mounted at
    // `proc_at` (kProc or kOwnProc). On failure returns false with errno, and `failed` names the operation.
    bool enter(int user_map, int proc, const char* proc_at, std::string& failed);

    const std::vector<Shown>& shown() const { return shown_; } // parents first

private:
    struct Link {
        std::string path, target;
    };
    std::optional<Shown> real_place(const Place& place);
    void add(const Place& place);
    void keep_within(const Bound& bound);
    void drop_useless_links();
    std::string resolve(const std::string& path, bool& exists);
    const Shown* above(const std::string& path) const; // the nearest shown place that contains it
    bool is_hidden(const std::string& path) const;

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
