// Asks running and waiting machines to end.
#pragma once
#include <atomic>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver {

// A flag with an fd to poll. Once requested, it stays requested and the fd readable, until it is cleared. Thread-safe;
// request() is async-signal-safe.
class Stopper {
public:
    Stopper();
    bool requested() const { return requested_.load(std::memory_order_relaxed); }
    int fd() const { return fd_.get(); }
    void request();
    void clear();

private:
    std::atomic<bool> requested_{false};
    tinykvm::UniqueFd fd_;
};

// Requested by SIGTERM or SIGINT.
class StopSignal : public Stopper {
public:
    static StopSignal& instance(); // installs the handlers on first use

private:
    StopSignal();
};

} // namespace kvmserver
