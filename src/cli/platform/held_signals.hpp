// Putting things back before a signal ends this process: temporary files, the terminal.
#pragma once
#include <csignal>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::cli::platform {

// A signal that ends the process came while HeldSignals lived. Whoever catches it has put back what there
// was, and calls end(), which does not return unless the signal is ignored meanwhile.
struct Interrupted {
    int signal;
    void end() const { std::raise(signal); }
};

// SIGINT, SIGTERM, SIGHUP and SIGQUIT, unless they are ignored, wait while this lives. For a process whose
// other threads block them.
class HeldSignals {
public:
    HeldSignals();
    ~HeldSignals(); // those that came and were not told end the process now
    HeldSignals(const HeldSignals&) = delete;
    HeldSignals& operator=(const HeldSignals&) = delete;

    // Until `fd` can be read or is at its end. Throws Interrupted.
    void wait_readable(int fd) const;

private:
    sigset_t before_;
    tinykvm::UniqueFd signals_;
};

} // namespace kvmserver::cli::platform
