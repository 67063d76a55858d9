// Landlock (landlock(7)): a second check of paths and connections, by the kernel, independent of mounts.
#pragma once
#include <cstdint>
#include <optional>
#include <utility>

#include "src/jail/own_root.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::jail {

// What a thread may reach, as a kernel's object that is filled before it is applied.
class PathRules {
public:
    // No rules yet. nullopt, with errno, when the kernel has no Landlock.
    static std::optional<PathRules> make();
    // Whether restrict() can keep abstract sockets of processes outside away: Linux 6.12.
    static bool can_part_abstract_sockets();
    // Allows a place that is opened as `at`, or that its path names now. False, with errno, if that fails; a path that
    // does not exist or may not be reached is not an error.
    bool add(const Shown& place, int at);
    bool add(const Shown& place);
    // Restricts the calling thread and threads that it starts. They reach files only beneath the places added, and
    // signal no process outside. Without `connect` they connect to no TCP port and to no abstract socket of a process
    // outside. What an older kernel cannot restrict stays unrestricted. Requires no_new_privs. False, with errno, if
    // that fails.
    bool restrict(bool connect) const;

private:
    PathRules(tinykvm::UniqueFd rules, long version, std::uint64_t handled)
        : rules_(std::move(rules)), version_(version), handled_(handled) {}
    tinykvm::UniqueFd rules_;
    long version_;
    std::uint64_t handled_; // the rights that the rules are about
};

} // namespace kvmserver::jail
