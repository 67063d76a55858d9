// Texts and outcomes for time limits that were exceeded.
#pragma once
#include <string>

#include "src/event_loop/incoming_connection.hpp"
#include "src/event_loop/spent_time.hpp"
#include "tinykvm/machine/state.hpp"

namespace kvmserver {

// "made no progress: it computed for 8 s (--max-request-time)"
std::string overrun_text(Overrun why, const tinykvm::Limits& limits);

inline request::Outcome outcome_of(Overrun why) {
    switch (why) {
    case Overrun::total: return request::Outcome::over_total;
    case Overrun::cpu: return request::Outcome::over_cpu;
    default: return request::Outcome::no_progress;
    }
}

} // namespace kvmserver
