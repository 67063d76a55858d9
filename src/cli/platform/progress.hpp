// A progress bar for transfers, on terminals only; with --json, progress events.
#pragma once
#include <chrono>
#include <cstdint>

#include "src/cli/command.hpp"

namespace kvmserver::cli::platform {

// "Uploading 12 MiB of 31 MiB, 38%, 5.1 MiB/s, 4 s left", rewritten in place. The destructor erases it.
class ProgressBar {
public:
    ProgressBar(const char* what, Context& context, bool quiet);
    ~ProgressBar();
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;
    void show(std::uint64_t done, std::uint64_t all);

private:
    using Clock = std::chrono::steady_clock;
    const char* what_;
    Context& context_;
    bool active_;
    bool begun_ = false, shown_ = false;
    std::uint64_t first_ = 0; // what a resumed transfer had done before
    Clock::time_point begin_, last_;
};

} // namespace kvmserver::cli::platform
