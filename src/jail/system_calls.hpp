// seccomp(2) filter: the system calls that a process that runs machines may make.
#pragma once
#include <linux/filter.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::jail {

// Covers everything that such a process does inside its jail. System calls that nobody needs kill the process (SIGSYS).
// Unknown ones fail with ENOSYS, as on an older kernel, because the C library probes for some.
class SystemCalls {
public:
    // Builds the filter, which takes a millisecond. `alone`: the process has its own PID namespace. Otherwise, calls
    // that reach processes by number are allowed for its own number only.
    explicit SystemCalls(bool alone);
    // That of processes that are alone is the same for all, so who spawns them builds it once: a sealed file, or none
    // if that failed. spawn() gives it to them at kGiven, and they take it from there.
    static tinykvm::UniqueFd to_give();
    static SystemCalls given(); // builds it if none was given
    static constexpr int kGiven = 8;
    // Applies the filter to this thread and to threads that it starts, in addition to existing filters. False, with
    // errno, when the kernel has no seccomp. Requires no_new_privs.
    bool restrict() const;

private:
    explicit SystemCalls(std::vector<sock_filter> program) : program_(std::move(program)) {}
    std::vector<sock_filter> program_; // empty: building it failed
};

} // namespace kvmserver::jail
