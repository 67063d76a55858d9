// Asking running machines and those who wait to come to an end.
#pragma once
#include <atomic>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver {

// Once requested it stays so, and its fd readable. Thread-safe; request() is async-signal-safe.
class Stopper {
public:
    Stopper();
    bool requested() const { return requested_.load(std::memory_order_relaxed); }
    int fd() const { return fd_.get(); }
    void request();

private:
    std::atomic<bool> requested_{false};
    tinykvm::UniqueFd fd_;
};

// SIGTERM and SIGINT.
class StopSignal : public Stopper {
public:
    static StopSignal& instance(); // installs the handlers on first use

private:
    StopSignal();
};

} // namespace kvmserver
