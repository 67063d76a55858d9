// A clone of an image that answers a request of ours on trial: it may read, but what it writes, sends or prints does
// not leave it. Its clock is a day ahead, for images are used long after they were taken: timers that are due by then
// belong to each invocation.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "src/setup/boot.hpp"
#include "src/setup/setup.hpp"

namespace kvmserver {

class Trial {
public:
    Trial(const Setup& setup, const Options& options, std::shared_ptr<const tinykvm::MachineImage> image);

    // Answers GET --warmup-path. False: not a web server, or not for this path, or it took more than some seconds; this
    // trial is then over.
    bool answer();
    // Puts it back to its image. The CPU time of the answer after that is what invocations take (the first one is
    // slowed down by pages that are touched for the first time): nanoseconds, the least of some; nullopt when answer()
    // fails.
    std::optional<std::uint64_t> cost_ns();
    unsigned status() const { return clone_.warm_status; }         // of the last reply
    const std::string& reply() const { return clone_.warm_reply; } // the last one, or its beginning
    tinykvm::Machine& machine() { return *clone_.machine; }

private:
    tinykvm::MachineEnv env_;
    Options options_;
    Booted clone_;
};

} // namespace kvmserver
