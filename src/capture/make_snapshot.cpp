#include <cstdio>
#include <future>
#include <numeric>
#include <optional>
#include <set>
#include <string>

#include <fmt/format.h>

#include "src/capture/capture_timing.hpp"
#include "src/capture/hot_pages.hpp"
#include "src/capture/large_pages.hpp"
#include "src/capture/unique_check.hpp"
#include "src/capture/warm_up.hpp"
#include "src/setup/boot.hpp"
#include "src/setup/phases.hpp"
#include "src/setup/report.hpp"
#include "src/setup/setup.hpp"
#include "src/setup/storage.hpp"
#include "src/snapshot/folder_cache.hpp"
#include "src/snapshot/image_loader.hpp"
#include "src/snapshot/plan.hpp"
#include "src/snapshot/reader.hpp"
#include "src/snapshot/writer.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/machine/renumber.hpp"
#include "tinykvm/machine/restore.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

void print_made(const std::string& file, const SnapshotSummary& summary) {
    const double mib = static_cast<double>(summary.file_bytes) / (1 << 20);
    fmt::print("Snapshot {} {} sha256:{}\n", file,
               mib >= 10  ? fmt::format("{:.0f} MiB", mib)
               : mib >= 1 ? fmt::format("{:.1f} MiB", mib)
                          : fmt::format("{:.0f} KiB", mib * 1024),
               summary.sha256);
}

struct Made {
    SnapshotSummary summary;
    std::shared_ptr<MachineImage> image; // as it was written
    std::size_t hot = 0;                 // pages
};

// Freeing a large image takes as long as copying it: beside what comes next.
std::future<void> let_go(std::shared_ptr<MachineImage> image) {
    return std::async([image = std::move(image)]() mutable { image.reset(); });
}

Made write_image(const Setup& setup, const Options& options, std::shared_ptr<MachineImage> from,
                 const std::string& file, const FolderCache& cache, const NoteLine& note) {
    tell_phase(options, {.name = "check", .what = "checking that a clean machine answers"});
    TrialPages trial = trial_invocation(setup, options, from);
    std::vector<std::string> repeats = check_unique(setup, options, from, trial.tried, note);
    from->working_set = std::move(trial.written);
    put_large_last(*from, trial.hot);
    const auto image =
        renumber(*from, order_of_chunks(from->image->bytes(), from->root.value, trial.hot, from->image->fd()));
    const std::future<void> freed = let_go(std::move(from));
    std::vector<std::uint32_t> hot(trial.hot.size());
    std::iota(hot.begin(), hot.end(), 0);
    image->headroom = trial.headroom;
    setup.listeners->note_modes(image->listeners);
    image->large_pages = choose_large(*image, static_cast<Frame>(hot.size()));
    MachineState state = to_state(*image, setup.env, setup.program);
    state.repeats = std::move(repeats);
    tell_phase(options, {.name = "save", .what = "compressing"});
    return {write_snapshot(file, state, image->image->bytes(), hot, options.level, image->image->fd(), cache,
                           options.temporary ? Purpose::hand_on : Purpose::keep),
            image, hot.size()};
}

} // namespace

int make_snapshot(const Options& given) {
    std::optional<Phases> phases;
    Options options = given;
    set_note_sink(options.notes);
    if (!options.on_phase)
        options.on_phase = shown_by(phases.emplace());
    StopSignal::instance();
    check_output(options.snapshot_file); // fail before the boot, which may take long
    const auto setup = set_up_program(options);
    setup->listeners->set_dry(true);
    std::optional<Storage> storage; // for the boot and the warm-up; it is no part of the snapshot
    if (options.storage) {
        storage.emplace(*options.storage);
        if (!storage->boot())
            return static_cast<int>(storage->exit_code() == 0 ? static_cast<int>(ExitCode::failure)
                                                              : storage->exit_code());
        setup->env.neighbours = &storage->first();
    }
    Booted booted = boot_program(*setup, options, {});
    if (!booted.machine || !prepare_for_image(booted, options, program_name(setup->program))) {
        if (booted.end == LoopEnd::requested)
            note_line("interrupted: no snapshot was made");
        // Without a snapshot the command fails, whatever the program's own exit status.
        return static_cast<int>(booted.end == LoopEnd::timeout ? ExitCode::unreachable : ExitCode::failure);
    }
    const double boot_seconds = booted.seconds;
    const FolderCache cache(options.cache);
    std::set<std::string> noted; // of two snapshots each line is logged once
    const NoteLine note = [&noted](const std::string& line) {
        if (noted.insert(line).second)
            note_line(line);
    };
    OnImage on_cold;
    if (!options.early.file.empty())
        on_cold = [&](std::shared_ptr<MachineImage> image) {
            auto made = write_image(*setup, options, std::move(image), options.early.file, cache, note);
            const std::future<void> freed = let_go(std::move(made.image));
            options.early.written();
        };
    Taken taken = take_image(*setup, options, std::move(booted), on_cold);
    if (on_cold && taken.cold)
        return 0; // it is what was written
    const auto [summary, image, hot] =
        write_image(*setup, options, std::move(taken.image), options.snapshot_file, cache, note);
    if (options.verbose.general)
        note_line(fmt::format("{}: booted in {:.1f} ms; {} pages stored, {} zero, {} hot in {} of {} chunks",
                              program_name(setup->program), boot_seconds * 1000, summary.stored_pages,
                              summary.zero_pages, hot, summary.hot_chunks, summary.chunks));
    if (options.on_made)
        options.on_made({options.snapshot_file, summary.sha256, summary.file_bytes});
    else if (!options.temporary) // `deploy` tells what it stored
        print_made(options.snapshot_file, summary);
    std::fflush(stdout);
    if (const auto reader = SnapshotReader::open(options.snapshot_file);
        !options.temporary && worth_copies(reader) && cache.usable()) { // likely to be started soon
        const auto may_continue = [] { return true; };
        offer_chunks(reader, cache, hot_without_copies(reader, cache), may_continue);
        offer_large(*image, cache, large_without_copies(*image, cache), pages_of(*image), may_continue);
    }
    cache.make_room();
    return 0;
}

} // namespace kvmserver
