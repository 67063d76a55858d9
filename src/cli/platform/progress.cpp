#include "src/cli/platform/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include "src/cli/events/json_events.hpp"
#include "src/cli/platform/platform.hpp"

namespace kvmserver::cli::platform {

ProgressBar::ProgressBar(const char* what, Context& context, bool quiet)
    : what_(what), context_(context), active_(!context.events && !quiet && ::isatty(STDERR_FILENO) != 0) {}

ProgressBar::~ProgressBar() {
    if (shown_)
        context_.err << "\r\33[K" << std::flush;
}

void ProgressBar::show(std::uint64_t done, std::uint64_t all) {
    if (context_.events)
        context_.events->progress(done, all, "bytes");
    if (!active_ || all == 0)
        return;
    const auto now = Clock::now();
    if (!begun_ || done < first_) {
        begun_ = true;
        first_ = done;
        begin_ = now;
    }
    if (shown_ && now - last_ < std::chrono::milliseconds(100) && done != all)
        return;
    last_ = now;
    shown_ = true;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    std::string rate;
    if (seconds > 0.2 && done > first_) {
        const double speed = static_cast<double>(done - first_) / seconds;
        rate = fmt::format(", {}/s, {:.0f} s left", bytes_text(static_cast<std::uint64_t>(speed)),
                           static_cast<double>(all - done) / speed);
    }
    context_.err << fmt::format("\r\33[K{} {} of {}, {}%{}", what_, bytes_text(done), bytes_text(all), done * 100 / all,
                                rate)
                 << std::flush;
}

} // namespace kvmserver::cli::platform
