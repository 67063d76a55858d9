#include "src/setup/report.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>

#include "tinykvm/base/text.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

NoteSink& note_sink() {
    static NoteSink sink;
    return sink;
}

// Of the process, as stderr is. Phases writes it on a thread of its own.
std::atomic<bool>& progress_line() {
    static std::atomic<bool> drawn{false};
    return drawn;
}

} // namespace

void note_progress_line(bool drawn) { progress_line() = drawn; }

void set_note_sink(NoteSink sink) { note_sink() = std::move(sink); }

void note_line(const std::string& line) {
    if (const auto& note = note_sink().note)
        return note(printable(line));
    const std::string text = (progress_line() ? "\r\33[Kkvmserver: " : "kvmserver: ") + printable(line) +
                             "\n" /* names and texts of the guest may be in it */;
    (void)!::write(STDERR_FILENO, text.data(), text.size());
}

std::string program_name(const ProgramSpec& program) {
    const std::string& path = program.script.empty() ? program.path : program.script;
    return path.substr(path.rfind('/') + 1);
}

int report_stop(const std::string& name, const Stop& stop) {
    switch (stop.kind) {
    case StopKind::exited: return stop.status;
    case StopKind::killed: note_line(fmt::format("{}: {}", name, stop.report)); return 128 + stop.status;
    case StopKind::no_memory: note_line(fmt::format("{}: {}; raise --max-main-memory", name, stop.report)); return 1;
    default: note_line(fmt::format("{}: the machine broke: {}", name, stop.report)); return 1;
    }
}

void report_refusals(const std::string& name, const EventLoop& loop) {
    for (const std::string& line : loop.refusals().advice()) {
        const std::string text = fmt::format("{}: {}", name, line);
        if (const auto& refusal = note_sink().refusal)
            refusal(printable(text));
        else
            note_line(text);
    }
}

} // namespace kvmserver
