#include <poll.h>
#include <sched.h>

#include <cstdio>
#include <future>

#include <fmt/format.h>

#include "src/runner/announce.hpp"
#include "src/runner/snapshot_image.hpp"
#include "src/runner/workers.hpp"
#include "src/snapshot/cpu_check.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/machine/restore.hpp"

namespace kvmserver {

using namespace tinykvm;

int run_snapshot(const Options& options) {
    const std::uint64_t begin = host_mono_ns();
    StopSignal::instance();
    SnapshotReader reader = SnapshotReader::open(options.snapshot_file);
    require_guest_abi(reader, abi::kVersion);
    const MachineState state = reader.state();
    auto memory = Image::create(state.frames);
    const UnpackedCache cache(options.cache);
    auto unpacked = cache.find(reader);
    const bool keep_unpacked = !unpacked;
    if (options.verbose.general && unpacked)
        note_line(fmt::format("{}: its hot part was kept unpacked in {}", options.snapshot_file, options.cache));
    auto loader = std::make_shared<SnapshotLoader>(std::move(reader), std::move(unpacked), *memory);
    memory->set_loader(loader);
    std::atomic<bool> stop{false};
    // The hot part is unpacked by two threads while this one gets KVM, the VMs and the sockets ready.
    const std::size_t hot = loader->hot_chunks();
    auto front = std::async(std::launch::async, [&] { loader->load_chunks(0, hot / 2, stop); });
    auto back = std::async(std::launch::async, [&] { loader->load_chunks(hot / 2, hot, stop); });

    const auto setup = set_up_restored(options, state);
    const CpuDifference cpu = compare_cpu(state.cpu, cpu_state(setup->env.cpu));
    if (!cpu.compatible())
        throw UserError(ExitCode::bad_snapshot,
                        fmt::format("{}: {}; this host's CPU lacks them: build the snapshot here, or with --cpu x86-64-v2", options.snapshot_file, cpu.text()));
    setup->env.cpu = guest_cpu(state.cpu);
    setup->listeners->open(state.listeners);
    setup->env.pool = &setup->pool;
    const bool spare_cpu = std::thread::hardware_concurrency() > std::max(1u, options.threads);
    setup->pool.fill(setup->kvm, setup->env.cpu, 1, spare_cpu && setup->env.kind.pvm_door);
    front.get();
    back.get();
    std::vector<std::string> warnings;
    const auto image = from_state(state, memory, *setup->policy, warnings);
    for (const std::string& warning : warnings)
        note_line(warning);
    make_lazy(*image, *memory, setup->env.kind.pvm_door);
    if (uses_dirty_bits(*setup, options))
        clear_marks(*image, *memory);
    announce(*setup, options, static_cast<double>(host_mono_ns() - begin) / 1e9, "restored");

    // The rest is filled in behind, so that later requests do not wait for it and a damaged file is found out.
    std::atomic<bool> damaged{false};
    std::thread filler([&] {
        const sched_param none{};
        ::sched_setscheduler(0, SCHED_IDLE, &none); // only what the requests leave over
        // Even so the scheduler gives it some milliseconds now and then: the first request, for which many start us, goes first.
        constexpr int kHeadStartMs = 100;
        pollfd stopped{StopSignal::instance().fd(), POLLIN, 0};
        if (::poll(&stopped, 1, kHeadStartMs) > 0)
            return; // nobody will need the rest
        try {
            loader->load_chunks(loader->hot_chunks(), loader->chunks(), stop);
            if (keep_unpacked && !stop)
                cache.keep(loader->reader()); // for the next start
        } catch (const std::exception& error) {
            note_line(error.what());
            damaged = true;
            StopSignal::instance().request();
        }
    });
    int code;
    try {
        code = serve(*setup, options, image);
    } catch (...) {
        stop = true;
        filler.join();
        throw;
    }
    stop = true;
    filler.join();
    return damaged ? static_cast<int>(ExitCode::bad_snapshot) : code;
}

} // namespace kvmserver
