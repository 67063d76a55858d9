#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include "src/capture/capture_timing.hpp"
#include "src/capture/warm_up.hpp"
#include "src/runner/announce.hpp"
#include "src/runner/outside.hpp"
#include "src/runner/own_jail.hpp"
#include "src/runner/run_dev.hpp"
#include "src/runner/workers.hpp"
#include "src/setup/boot.hpp"
#include "src/setup/report.hpp"
#include "tinykvm/machine/restore.hpp"

namespace kvmserver {

using namespace tinykvm;

void announce(const Setup& setup, const Options& options, double seconds, const char* how) {
    std::string where;
    for (const std::string& address : setup.listeners->addresses())
        where += (where.empty() ? "" : ", ") + address;
    fmt::print("Program '{}' loaded. {} in {:.1f} ms, {} {}machine{} on {}\n", program_name(setup.program), how,
               seconds * 1000, options.threads, options.ephemeral ? "request " : "", options.threads == 1 ? "" : "s",
               where);
    std::fflush(stdout);
}

int run_program(const Options& options) {
    if (options.dev)
        return run_dev(options);
    OwnJail jail(options);
    StopSignal::instance();
    const auto setup = set_up_program(options);
    if (options.jail != jail::Mode::off && !options.permissions.all)
        setup->policy->ask_about_host(existence_outside());
    jail.enter(*setup, options, true);
    const bool cloned = options.ephemeral || options.threads > 1;
    // Without images a program that never listens may be a job that just takes long.
    const bool limit_given = std::ranges::find(options.given, "max-boot-time") != options.given.end();
    const BootTerms terms{.must_listen = cloned, .limited = cloned || (limit_given && !options.no_listen)};
    Booted booted = boot_program(*setup, options, terms);
    if (!booted.machine)
        return booted.exit_code;
    if (cloned) {
        if (!prepare_for_image(booted, options, program_name(setup->program)))
            return booted.exit_code;
        const double boot_seconds = booted.seconds;
        const auto image = take_image(*setup, options, std::move(booted));
        if (uses_dirty_bits(*setup, options))
            clear_marks(*image, *image->image);
        announce(*setup, options, boot_seconds, "booted");
        return serve(*setup, options, image);
    }
    if (options.warmup_auto)
        note_line("--warmup auto: this machine keeps its state and warms up as it is used");
    warm_up(booted, options, options.warmup);
    announce(*setup, options, booted.seconds, "booted");
    WorkerStats stats;
    const int code = serve_kept(*setup, *booted.machine, *booted.loop, stats);
    if (options.stats)
        print_stats(stats, false);
    return code;
}

} // namespace kvmserver
