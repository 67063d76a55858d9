// Delays signals that end this process until temporary files are removed and the terminal is restored.
#pragma once
#include <csignal>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::cli::platform {

// Thrown for a signal that arrived while HeldSignals existed. Whoever catches it cleans up and calls end(), which
// returns only if the signal is ignored by then.
struct Interrupted {
    int signal;
    void end() const { std::raise(signal); }
};

// Blocks SIGINT, SIGTERM, SIGHUP and SIGQUIT while it exists, except those that are ignored. All other threads of the
// process must block them too.
class HeldSignals {
public:
    HeldSignals();
    ~HeldSignals(); // signals that arrived and were not thrown end the process now
    HeldSignals(const HeldSignals&) = delete;
    HeldSignals& operator=(const HeldSignals&) = delete;

    // Waits until `fd` is readable or at its end. Throws Interrupted.
    void wait_readable(int fd) const;

private:
    sigset_t before_;
    tinykvm::UniqueFd signals_;
};

} // namespace kvmserver::cli::platform
