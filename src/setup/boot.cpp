#include "src/setup/boot.hpp"

#include <fmt/format.h>

#include "src/event_loop/overrun.hpp"
#include "src/setup/report.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver {

using namespace tinykvm;

Booted boot_program(const Setup& setup, const Options& options, BootTerms terms) {
    Booted booted;
    const std::string name = program_name(setup.program);
    const std::uint64_t begin = host_mono_ns();
    tell_phase(options, {.name = "boot", .what = "booting " + name});
    booted.loop = std::make_unique<EventLoop>(*setup.listeners, note_line);
    booted.loop->keep_refusals(true);
    if (!options.verbose.general)
        booted.hidden = std::make_shared<HiddenOutput>(name);
    booted.loop->set_exists([&policy = *setup.policy](const std::string& path) { return policy.is_on_host(path); });
    booted.machine = Machine::boot(setup.env, setup.program, *booted.loop);
    if (terms.debugger) {
        booted.machine->attach(*terms.debugger);
        booted.machine->stop_soon();
    }
    EventLoop::Until until;
    until.quiescent = true;
    if (terms.limited) {
        until.limit_ns = static_cast<std::uint64_t>(options.limits.boot_seconds * 1e9);
        until.all_waits_count = true;
    }
    const LoopEnd end = booted.end = booted.loop->run(*booted.machine, until);
    booted.seconds = static_cast<double>(host_mono_ns() - begin) / 1e9;
    if (end == LoopEnd::quiescent)
        return booted;
    booted.machine->space(); // the machine is still alive: its memory shows where it was
    if (end == LoopEnd::requested) {
        booted.exit_code = 0;
    } else if (end == LoopEnd::timeout) {
        const bool computed = booted.loop->overrun() == Overrun::computed;
        note_line(fmt::format("{}: did not wait for a connection within {:.4g} s{}; it needs more time "
                              "(--max-boot-time) or is not a server{}",
                              name, options.limits.boot_seconds,
                              computed ? " of CPU time" : ", most of which it waited for something else",
                              terms.must_listen ? "" : " (--no-listen)"));
        booted.exit_code = static_cast<int>(ExitCode::unreachable);
    } else {
        booted.exit_code = report_stop(name, booted.loop->stop());
        if (terms.must_listen && booted.loop->stop().kind == StopKind::exited) {
            note_line(fmt::format("{}: exited with status {} before it waited for a connection", name,
                                  booted.loop->stop().status));
            booted.exit_code = booted.exit_code == 0 ? static_cast<int>(ExitCode::failure) : booted.exit_code;
        }
    }
    if (booted.exit_code != 0)
        report_refusals(name, *booted.loop);
    booted.machine.reset();
    return booted;
}

} // namespace kvmserver
