// Processes that are ready for any function, so that a cold request does not wait for a new process and VM.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "src/daemon/function_process.hpp"

namespace kvmserver::daemon {

// Belongs to one thread.
class SpareProcesses {
public:
    SpareProcesses(std::size_t count, jail::Mode mode, ControlGroups* groups)
        : count_(count), mode_(mode), groups_(groups) {}

    // Returns a spare process, or a new one. Throws HostError.
    std::unique_ptr<FunctionProcess> take();
    // Whether there are enough spare processes. Also true after add() failed, until the next take().
    bool complete() const { return failed_ || ready_.size() >= count_; }
    // Makes one, with memory for that much of a snapshot.
    void add(std::uint64_t ahead_bytes);

private:
    std::size_t count_;
    jail::Mode mode_;
    ControlGroups* groups_;                               // null: none
    std::vector<std::unique_ptr<FunctionProcess>> ready_; // oldest first
    bool failed_ = false;
};

} // namespace kvmserver::daemon
