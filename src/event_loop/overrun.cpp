#include "src/event_loop/overrun.hpp"

#include <fmt/format.h>

namespace kvmserver {

std::string overrun_text(Overrun why, const tinykvm::Limits& limits) {
    const double seconds = limits.request_seconds;
    switch (why) {
    case Overrun::total:
        return fmt::format("took longer than {:.4g} s in all (--max-request-total)", limits.request_total_seconds);
    case Overrun::cpu:
        return fmt::format("used more than {:.4g} s of CPU (--max-request-cpu)", limits.request_cpu_seconds);
    case Overrun::stuck:
        return fmt::format("made no progress: for {:.4g} s it waited for nothing that could come (--max-request-time)",
                           seconds);
    case Overrun::idle:
        return fmt::format("made no progress: its client was idle for {:.4g} s (--max-request-time)", seconds);
    case Overrun::computed:
    case Overrun::none: break;
    }
    return fmt::format("made no progress: it computed for {:.4g} s (--max-request-time)", seconds);
}

} // namespace kvmserver
