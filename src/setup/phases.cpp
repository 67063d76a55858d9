#include "src/setup/phases.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include "src/setup/report.hpp"

namespace kvmserver {

using namespace std::chrono_literals;

namespace {

constexpr auto kQuietFor = 1s;
constexpr auto kRedraw = 200ms;

void put(const std::string& text) { (void)!::write(STDERR_FILENO, text.data(), text.size()); }

} // namespace

Phases::Phases()
    : terminal_(::isatty(STDERR_FILENO) != 0), thread_([this] {
          sigset_t all; // signals are for the main thread
          ::sigfillset(&all);
          ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
          std::unique_lock lock(mutex_);
          for (auto next = begin_ + kQuietFor; !ended_.wait_until(lock, next, [this] { return over_; });
               next = Clock::now() + kRedraw)
              tell();
      }) {}

Phases::~Phases() {
    {
        const std::lock_guard lock(mutex_);
        over_ = true;
    }
    ended_.notify_one();
    thread_.join();
    if (drawn_) {
        put("\r\33[K");
        note_progress_line(false);
    }
}

void Phases::show(const std::string& what, const std::string& detail) {
    const std::lock_guard lock(mutex_);
    if (what != what_)
        phase_begin_ = Clock::now();
    what_ = what;
    detail_ = detail;
}

// The cursor is left at the line's begin, so that what others print covers it.
void Phases::tell() {
    if (what_.empty())
        return;
    if (terminal_) {
        const double seconds = std::chrono::duration<double>(Clock::now() - phase_begin_).count();
        put(fmt::format("\r\33[K{}{}{}, {:.0f} s\r", what_, detail_.empty() ? "" : ": ", detail_, seconds));
        drawn_ = true;
        note_progress_line(true);
    } else if (told_ != what_) {
        note_line(what_ + " ...");
        told_ = what_;
    }
}

} // namespace kvmserver
