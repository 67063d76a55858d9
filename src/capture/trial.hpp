// A clone of an image that answers a synthetic request with no effect outside: it may read, but what it writes, sends
// or prints stays inside. Its clock is set a day ahead, because images are used long after they were taken: timers that
// are due by then fire in each invocation.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "src/setup/boot.hpp"
#include "src/setup/setup.hpp"

namespace kvmserver {

class Trial {
public:
    Trial(const Setup& setup, const Options& options, const std::shared_ptr<const tinykvm::MachineImage>& image);

    // Answers the warm-up requests, or one of them. False when the program is not a web server, does not answer one, or
    // takes longer than some seconds; the trial is over then.
    bool answer();
    bool answer(const WarmupRequest& request);
    // CPU time of an invocation with each of these requests, added up, in nanoseconds: the least of several answers
    // each, all after a reset. (The first answer() is slower because it touches pages for the first time.) nullopt when
    // answer() fails.
    std::optional<std::uint64_t> cost_ns();
    const std::vector<unsigned>& statuses() const { return clone_.warm_statuses; } // of the last answer() or cost_ns()
    const std::string& reply() const { return clone_.warm_reply; }                 // the last reply, or its beginning
    HiddenOutput& output() { return *output_; } // nothing of it is shown unless the caller does
    tinykvm::Machine& machine() { return *clone_.machine; }

private:
    tinykvm::MachineEnv env_;
    Options options_;
    std::shared_ptr<HiddenOutput> output_;
    Booted clone_;
};

} // namespace kvmserver
