// Processes that are ready for any function, so that a cold request does not wait for a new process and VM.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "src/daemon/function_process.hpp"
#include "src/daemon/template_process.hpp"

namespace kvmserver::daemon {

// Thread-safe.
class SpareProcesses {
public:
    SpareProcesses(std::size_t count, jail::Mode mode, ControlGroups* groups)
        : count_(count), mode_(mode), groups_(groups), template_(mode) {}

    // Returns a spare process, or a new one. Throws HostError.
    std::unique_ptr<FunctionProcess> take();
    // Whether there are enough spare processes. Also true after add() failed, until the next take().
    bool complete() const;
    // Makes one, with memory for that much of a snapshot.
    void add(std::uint64_t ahead_bytes);

private:
    const std::size_t count_;
    const jail::Mode mode_;
    ControlGroups* const groups_; // null: none
    TemplateProcess template_;
    mutable std::mutex mutex_;                            // guards the following
    std::vector<std::unique_ptr<FunctionProcess>> ready_; // oldest first
    bool failed_ = false;
};

} // namespace kvmserver::daemon
