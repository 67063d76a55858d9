// A control group (cgroup v2) for each process of a function: what the kernel counts and bounds for it, whatever its
// programs do. Figures and file names are those of the kernel's Documentation/admin-guide/cgroup-v2.rst.
#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/jail/walls.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

struct GroupLimits {
    std::uint64_t memory_bytes = 0; // with memory files, page cache and the kernel's own for it; 0: no limit
    std::uint64_t tasks = 0;        // processes and threads; 0: no limit
};

// Of one process. Any thread.
class ControlGroup {
public:
    ~ControlGroup(); // the process must have ended, and been waited for
    ControlGroup(const ControlGroup&) = delete;
    ControlGroup& operator=(const ControlGroup&) = delete;

    // Who writes "0" to it is in the group from then on.
    int processes_fd() const { return processes_.get(); }
    // Throws HostError.
    void limit(const GroupLimits& limits);
    // The kernel has ended a process of it since it had no more memory within its limit.
    bool ran_out_of_memory() const;
    std::uint64_t memory_limit() const { return memory_limit_; }

private:
    friend class ControlGroups;
    ControlGroup(std::filesystem::path folder);

    std::filesystem::path folder_;
    tinykvm::UniqueFd processes_;
    std::atomic<std::uint64_t> memory_limit_ = 0;
};

// Those of a daemon, in the group that it was started in, which must be handed to it (systemd: Delegate=): it moves
// itself into a group beneath, as processes may be in leaves only.
class ControlGroups {
public:
    // With Mode::off there are none. Throws UserError (not_permitted) with Mode::strict when any controller cannot be
    // had.
    explicit ControlGroups(jail::Mode mode);

    bool usable() const { return usable_; }
    // What could not be had, and why, in words; "": nothing.
    const std::string& missing() const { return missing_; }
    // What a daemon in this process's place would miss, as far as that can be told without changing anything.
    static std::string would_miss();

    // None where there are none. Throws HostError.
    std::unique_ptr<ControlGroup> make();

private:
    void prepare();

    std::filesystem::path base_;
    bool usable_ = false;
    std::string missing_;
    std::atomic<std::uint64_t> next_ = 0;
};

// What a process needs at most whose machines may have so much memory each (`memory`), and change so much of it in a
// request
// (`request_memory`): the image is there once.
GroupLimits limits_of_process(std::uint64_t memory, std::uint64_t request_memory, unsigned machines);

} // namespace kvmserver::daemon
