// A control group (cgroup v2) for each function process: the kernel accounts for and limits what it uses. File names
// and values: the kernel's Documentation/admin-guide/cgroup-v2.rst.
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
    std::uint64_t memory_bytes = 0; // includes memfds, page cache and kernel memory; 0: no limit
    std::uint64_t tasks = 0;        // processes and threads; 0: no limit
};

// The control group of one process. Any thread.
class ControlGroup {
public:
    ~ControlGroup(); // the process must have ended and been reaped
    ControlGroup(const ControlGroup&) = delete;
    ControlGroup& operator=(const ControlGroup&) = delete;

    // A process that writes "0" to it joins the group.
    int processes_fd() const { return processes_.get(); }
    // Throws HostError.
    void limit(const GroupLimits& limits);
    // Whether the kernel killed a process of the group because of its memory limit.
    bool ran_out_of_memory() const;
    std::uint64_t memory_limit() const { return memory_limit_; }

private:
    friend class ControlGroups;
    ControlGroup(std::filesystem::path folder);

    std::filesystem::path folder_;
    tinykvm::UniqueFd processes_;
    std::atomic<std::uint64_t> memory_limit_ = 0;
};

// All control groups of a daemon. They are children of the group that the daemon was started in, which must be
// delegated to it (systemd: Delegate=). The daemon moves itself into a child too, since only leaves may contain
// processes.
class ControlGroups {
public:
    // Mode::off: there are no groups. Mode::strict: throws UserError (not_permitted) if any controller is missing.
    explicit ControlGroups(jail::Mode mode);

    bool usable() const { return usable_; }
    // What is missing and why, as text; "": nothing.
    const std::string& missing() const { return missing_; }
    // What a daemon in place of this process would be missing, as far as that shows without changing anything.
    static std::string would_miss();

    // A new group; null if there are none. Throws HostError.
    std::unique_ptr<ControlGroup> make();

private:
    void prepare();

    std::filesystem::path base_;
    bool usable_ = false;
    std::string missing_;
    std::atomic<std::uint64_t> next_ = 0;
};

// The limits of a process whose machines may each have `memory` bytes and change `request_memory` of them in a request.
// The image counts once.
GroupLimits limits_of_process(std::uint64_t memory, std::uint64_t request_memory, unsigned machines);

} // namespace kvmserver::daemon
