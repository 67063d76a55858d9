#include "src/cli/events/machine_events.hpp"

#include "src/cli/events/json_events.hpp"

namespace kvmserver::cli {

void tell_events(Options& options, JsonEvents& events) {
    options.on_phase = [&events](const PhaseNews& news) {
        events.phase(news.name, news.what);
        if (news.done > 0)
            events.progress(news.done, news.all, "requests", news.detail);
    };
    options.on_made = [&events](const SnapshotMade& made) {
        events.result({{"file", made.file}, {"digest", "sha256:" + made.sha256}, {"bytes", made.bytes}});
    };
    options.notes = {.note = [&events](const std::string& line) { events.message(line); },
                     .refusal = [&events](const std::string& line) { events.refusal(line); }};
}

} // namespace kvmserver::cli
