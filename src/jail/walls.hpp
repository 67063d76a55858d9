// The walls around a process that runs machines: they separate a guest that has escaped its machine from the host.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvmserver::jail {

// Which walls are required: `--jail`.
enum class Mode : std::uint8_t {
    off,       // no walls
    automatic, // those that this host and this user allow; missing ones are logged once
    strict,    // all; otherwise the process ends
};
std::optional<Mode> mode_of(std::string_view text); // "off", "auto", "strict"
std::string_view text_of(Mode mode);

enum class Wall : std::uint8_t {
    user,         // its own user, or a user namespace
    mounts,       // a root file system that holds only what the permissions name
    network,      // a network namespace with no interface but loopback, unless it has a network permission
    processes,    // it sees no other process
    ipc,          // no System V IPC or message queues of other processes
    capabilities, // none, and no way to gain any
    landlock,     // a second check of paths, by the kernel
    system_calls, // seccomp: only those that it needs
    limits,       // no core dumps; a limit on threads
};
inline constexpr Wall kWalls[] = {Wall::user,         Wall::mounts,   Wall::network,      Wall::processes, Wall::ipc,
                                  Wall::capabilities, Wall::landlock, Wall::system_calls, Wall::limits};
std::string_view name_of(Wall wall);

// A wall that could not be set up.
struct Missing {
    Wall wall;
    std::string why; // "unshare: Operation not permitted"
};
// "no network namespace (unshare: Operation not permitted), no landlock (not in this kernel)"
std::string text_of(const std::vector<Missing>& missing);

} // namespace kvmserver::jail
