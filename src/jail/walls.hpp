// The walls around a process that runs machines: what stands between a guest that overcame its machine, and the host.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvmserver::jail {

// How much must be had: `--jail`.
enum class Mode : std::uint8_t {
    off,       // no walls
    automatic, // those that this host and this user allow; what is missing is said once
    strict,    // all, or the process ends
};
std::optional<Mode> mode_of(std::string_view text); // "off", "auto", "strict"
std::string_view text_of(Mode mode);

enum class Wall : std::uint8_t {
    user,         // a user of its own, or a user namespace
    mounts,       // a file system of its own that holds only what its permissions name
    network,      // a network namespace without any interface, where it has no network permission
    processes,    // sees no process but itself
    ipc,          // no System V IPC or message queues of others
    capabilities, // none, and no way to new ones
    landlock,     // its paths are checked a second time, by the kernel
    system_calls, // seccomp: only those it has use for
    limits,       // no core dumps; threads, descriptors
};
inline constexpr Wall kWalls[] = {Wall::user,         Wall::mounts,   Wall::network,      Wall::processes, Wall::ipc,
                                  Wall::capabilities, Wall::landlock, Wall::system_calls, Wall::limits};
std::string_view name_of(Wall wall);

// A wall that could not be had.
struct Missing {
    Wall wall;
    std::string why; // "unshare: Operation not permitted"
};
// "no network namespace (unshare: Operation not permitted), no landlock (not in this kernel)"
std::string text_of(const std::vector<Missing>& missing);

} // namespace kvmserver::jail
