// A file system that holds what a plan names and nothing else.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/jail/plan.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::jail {

// What stands in the new root, in words of the host's real paths.
struct Shown {
    std::string path;
    bool write = false, folder = false;
};

class OwnRoot {
public:
    // Looks at the host's files: what the plan's places really are, by way of which symlinks.
    explicit OwnRoot(const Plan& plan);

    // The places in which something may be changed, and that ids can be mapped in is to be tried first. False, with
    // errno, where not.
    bool can_map(int user_map) const;
    // Makes it the root of this mount namespace, whose mounts are private; `proc` is shown at kProc or kOwnProc. False,
    // with errno and `failed` naming what.
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
    const Shown* above(const std::string& path) const; // the nearest place that shows it
    bool is_hidden(const std::string& path) const;

    std::vector<Shown> shown_;
    std::vector<Link> links_;
    std::vector<std::string> folders_; // on the way, or empty
    std::vector<std::string> hidden_;  // real paths
};

// Where a procfs belongs, and a process's own folder of one.
inline constexpr const char* kProc = "/proc";
inline constexpr const char* kOwnProc = "/proc/self";
inline constexpr const char* kDevices[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"};

} // namespace kvmserver::jail
