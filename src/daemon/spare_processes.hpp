// Processes that are ready for any function: a cold request then does not wait until one is started and has a
// VM.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "src/daemon/function_process.hpp"

namespace kvmserver::daemon {

// For one thread.
class SpareProcesses {
public:
    SpareProcesses(std::size_t count, jail::Mode mode, ControlGroups* groups)
        : count_(count), mode_(mode), groups_(groups) {}

    // A spare one, or a new one. Throws HostError.
    std::unique_ptr<FunctionProcess> take();
    // Whether there are as many as there should be; also when the last could not be made, until the next
    // take().
    bool complete() const { return failed_ || ready_.size() >= count_; }
    // With memory for so much of a snapshot.
    void add(std::uint64_t ahead_bytes);

private:
    std::size_t count_;
    jail::Mode mode_;
    ControlGroups* groups_;                               // null: none
    std::vector<std::unique_ptr<FunctionProcess>> ready_; // the oldest first
    bool failed_ = false;
};

} // namespace kvmserver::daemon
