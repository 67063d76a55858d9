// The part of a jail's root that nearly all plans have, mounted and with its rules of paths before the plan is known:
// of the time that entering a jail takes, most goes into these some thirty mounts.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/jail/landlock.hpp"
#include "src/jail/own_root.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::jail {

class CommonRoot {
public:
    // Mounts `places`, for reading, and devices. `beneath` and `user_map` as for OwnRoot; -1: none. This namespace
    // receives only: the host's mounts must still appear here, as the plan may name one that is made later. Null if it
    // fails: then all is as before.
    static std::unique_ptr<CommonRoot> make(const std::vector<std::string>& places, int beneath, int user_map);

    // Whether `wanted` can be built upon it: it shows the same, and the host has the same files there as when this was
    // made. `mapped`: whether it is to be ID-mapped.
    bool serves(const OwnRoot& wanted, bool mapped);
    // All is as before. False, with errno, if that fails.
    static bool remove(int beneath);

    const OwnRoot& root() const { return root_; }
    // The rules of what root() shows; nullopt: none could be made. Call once.
    std::optional<PathRules> take_rules() { return std::move(rules_); }

private:
    struct Identity { // of a file: stat(2)
        std::uint64_t device = 0, number = 0;
        bool operator==(const Identity&) const = default;
    };
    static Identity file_at(const char* path); // zeros if there is none
    CommonRoot(const Plan& plan, bool mapped) : root_(plan), mapped_(mapped) {}
    bool build(int beneath, int user_map);
    bool mounts_changed();

    const OwnRoot root_;
    const bool mapped_;
    std::vector<std::pair<std::string, Identity>> files_; // what is mounted, by path
    tinykvm::UniqueFd mount_table_;                       // tells of changes (proc(5), mounts)
    std::optional<PathRules> rules_;
};

} // namespace kvmserver::jail
