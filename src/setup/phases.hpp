// Tells what a command that takes long is doing: on a terminal in one line that is rewritten, elsewhere a line a phase.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "src/setup/options.hpp"

namespace kvmserver {

// Says nothing in the first second, so that a quick command is as quiet as ever.
class Phases {
public:
    Phases();
    ~Phases(); // erases the line on a terminal
    Phases(const Phases&) = delete;
    Phases& operator=(const Phases&) = delete;

    // `what`: "warming up"; the same again changes only the detail, which terminals show: "680 requests".
    void show(const std::string& what, const std::string& detail);

private:
    using Clock = std::chrono::steady_clock;
    void tell(); // with the lock

    const bool terminal_;
    const Clock::time_point begin_ = Clock::now();
    std::mutex mutex_;
    std::condition_variable ended_;
    bool over_ = false, drawn_ = false;
    std::string what_, detail_, told_;
    Clock::time_point phase_begin_ = begin_;
    std::thread thread_; // last: it uses the members above
};

// For Options::on_phase.
inline auto shown_by(Phases& phases) {
    return [&phases](const PhaseNews& news) { phases.show(news.what, news.detail); };
}

} // namespace kvmserver
