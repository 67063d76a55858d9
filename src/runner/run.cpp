#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include <fmt/format.h>

#include "src/capture/capture_timing.hpp"
#include "src/capture/warm_up.hpp"
#include "src/runner/announce.hpp"
#include "src/runner/gdb_server.hpp"
#include "src/runner/outside.hpp"
#include "src/runner/own_jail.hpp"
#include "src/runner/run_dev.hpp"
#include "src/runner/workers.hpp"
#include "src/setup/boot.hpp"
#include "src/setup/huge_pages.hpp"
#include "src/setup/phases.hpp"
#include "src/setup/report.hpp"
#include "src/setup/storage.hpp"
#include "tinykvm/base/text.hpp"
#include "tinykvm/machine/restore.hpp"

namespace kvmserver {

using namespace tinykvm;

void announce(const Setup& setup, const Options& options, double seconds, const char* how) {
    std::string where;
    for (const std::string& address : setup.listeners->addresses())
        where += (where.empty() ? "" : ", ") + address;
    fmt::print("Program '{}' loaded. {} in {:.1f} ms, {} {}machine{} on {}\n", printable(program_name(setup.program)),
               how, seconds * 1000, options.threads, options.ephemeral ? "request " : "",
               options.threads == 1 ? "" : "s", where);
    std::fflush(stdout);
}

namespace {

// One machine, which keeps its state. The program need not be a server.
int run_kept(const Setup& setup, const Options& options, GdbServer* gdb) {
    // A program that never listens may be a job that just takes long.
    const bool limit_given = std::ranges::find(options.given, "max-boot-time") != options.given.end();
    Booted booted = boot_program(setup, options,
                                 {.must_listen = false, .limited = limit_given && !options.no_listen, .debugger = gdb});
    if (!booted.machine) {
        if (gdb && booted.end == LoopEnd::stopped)
            gdb->ended(booted.loop->stop());
        return booted.exit_code;
    }
    if (!options.before_snapshot.empty())
        note_line("--before-snapshot: this machine keeps its state, so no image of it is taken");
    if (options.warmup_auto)
        note_line("--warmup auto: this machine keeps its state and warms up as it is used");
    warm_up(booted, options, options.warmup, {.all = options.warmup * options.warmup_requests.size()});
    booted.loop->set_output({}); // what it prints from now on is of requests of others
    if (booted.hidden)
        booted.hidden->tell_count();
    tell_arena_unused(setup);
    use_huge_pages(options, *booted.machine);
    announce(setup, options, booted.seconds, "booted");
    WorkerStats stats;
    const int code = serve_kept(setup, *booted.machine, *booted.loop, stats);
    if (gdb)
        gdb->ended(booted.loop->stop());
    if (options.stats)
        print_stats(stats, false);
    return code;
}

// Machines that are reset, or several. Null, with the exit code, if the program is no server.
std::shared_ptr<MachineImage> boot_image(const Setup& setup, const Options& given, double& boot_seconds,
                                         int& exit_code) {
    Phases phases;
    Options options = given;
    options.on_phase = shown_by(phases);
    Booted booted = boot_program(setup, options, {});
    boot_seconds = booted.seconds;
    if (!booted.machine || !prepare_for_image(booted, options, program_name(setup.program))) {
        exit_code = booted.exit_code;
        return nullptr;
    }
    return take_image(setup, options, std::move(booted)).image;
}

int serve_program(Setup& setup, const Options& options, GdbServer* gdb, Storage* storage) {
    if (storage) {
        if (!storage->boot())
            return storage->exit_code();
        setup.env.neighbours = &storage->first();
    }
    if (!options.ephemeral && options.threads <= 1)
        return run_kept(setup, options, gdb);
    double boot_seconds = 0;
    int exit_code = 0;
    const auto image = boot_image(setup, options, boot_seconds, exit_code);
    if (!image)
        return exit_code;
    if (uses_dirty_bits(setup, options))
        clear_marks(*image, *image->image);
    use_huge_pages(options, *image->image);
    announce(setup, options, boot_seconds, "booted");
    return serve(setup, options, image, storage);
}

} // namespace

int run_program(const Options& options) {
    if (options.dev)
        return run_dev(options);
    OwnJail jail(options);
    StopSignal::instance();
    const auto setup = set_up_program(options);
    if (options.jail != jail::Mode::off && !options.permissions.all)
        setup->policy->ask_about_host(existence_outside());
    std::optional<GdbServer> gdb;
    if (!options.gdb.empty()) {
        gdb.emplace("--gdb", options.gdb, StopSignal::instance());
        gdb->announce(setup->program.path);
    }
    std::optional<Storage> storage;
    if (options.storage)
        storage.emplace(*options.storage);
    if (storage && options.jail != jail::Mode::off && !options.storage->permissions.all)
        storage->setup().policy->ask_about_host(existence_outside());
    jail.enter(*setup, options, true, storage ? &storage->setup() : nullptr);
    const int code = serve_program(*setup, options, gdb ? &*gdb : nullptr, storage ? &*storage : nullptr);
    if (storage && options.stats)
        storage->print_stats();
    return storage && storage->exit_code() != 0 ? storage->exit_code() : code;
}

} // namespace kvmserver
