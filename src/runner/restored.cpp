#include "src/runner/restored.hpp"

#include <poll.h>
#include <sched.h>

#include <future>

#include <fmt/format.h>

#include "src/runner/request_machine.hpp"
#include "src/snapshot/cpu_check.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/machine/restore.hpp"

namespace kvmserver {

using namespace tinykvm;

Restored::Restored(SnapshotReader reader, const Options& options, Sockets sockets, const Change& change)
    : cache_(options.cache) {
    require_guest_abi(reader, abi::kVersion);
    const MachineState state = reader.state();
    const std::string name = reader.path().string();
    memory_ = Image::create(state.frames);
    auto unpacked = cache_.find(reader);
    keep_unpacked_ = !unpacked;
    if (options.verbose.general && unpacked)
        note_line(fmt::format("{}: its hot part was kept unpacked in {}", name, options.cache));
    loader_ = std::make_shared<SnapshotLoader>(std::move(reader), std::move(unpacked), *memory_);
    memory_->set_loader(loader_);
    // The hot part is unpacked by two threads while this one gets KVM, the VMs and the sockets ready.
    const std::size_t hot = loader_->hot_chunks();
    auto front = std::async(std::launch::async, [&] { loader_->load_chunks(0, hot / 2, stop_); });
    auto back = std::async(std::launch::async, [&] { loader_->load_chunks(hot / 2, hot, stop_); });

    setup_ = set_up_restored(options, state);
    const CpuDifference cpu = compare_cpu(state.cpu, cpu_state(setup_->env.cpu));
    if (!cpu.compatible())
        throw UserError(
            ExitCode::bad_snapshot,
            fmt::format(
                "{}: {}; this host's CPU lacks them: build the snapshot here, or with --cpu x86-64-v2", name,
                cpu.text()));
    setup_->env.cpu = guest_cpu(state.cpu);
    if (sockets == Sockets::open)
        setup_->listeners->open(state.listeners);
    setup_->env.pool = &setup_->pool;
    const bool spare_cpu = std::thread::hardware_concurrency() > std::max(1u, options.threads);
    setup_->pool.fill(setup_->kvm, setup_->env.cpu, 1, spare_cpu && setup_->env.kind.pvm_door);
    front.get();
    back.get();
    std::vector<std::string> warnings;
    image_ = from_state(state, memory_, *setup_->policy, warnings);
    for (const std::string& warning : warnings)
        note_line(warning);
    if (change) {
        loader_->load_chunks(hot, loader_->chunks(), stop_);
        auto changed = change(*setup_, std::move(image_));
        image_ = std::move(changed);
        memory_ = image_->image;
        loader_.reset();
    } else {
        make_lazy(*image_, *memory_, setup_->env.kind.pvm_door);
    }
    if (uses_dirty_bits(*setup_, options))
        clear_marks(*image_, *memory_);
}

Restored::~Restored() {
    stop_ = true;
    stopper_.request();
    if (filler_.joinable())
        filler_.join();
}

void Restored::fill_behind(std::function<void()> on_damage) {
    if (!loader_)
        return;
    filler_ = std::thread([this, on_damage = std::move(on_damage)] {
        const sched_param none{};
        ::sched_setscheduler(0, SCHED_IDLE, &none); // only what the requests leave over
        // Even so the scheduler gives it some milliseconds now and then: the first request, for which many
        // start us, goes first.
        constexpr int kHeadStartMs = 100;
        pollfd stopped{stopper_.fd(), POLLIN, 0};
        if (::poll(&stopped, 1, kHeadStartMs) > 0)
            return; // nobody will need the rest
        try {
            loader_->load_chunks(loader_->hot_chunks(), loader_->chunks(), stop_);
            if (keep_unpacked_ && !stop_)
                cache_.keep(loader_->reader()); // for the next start
        } catch (const std::exception& error) {
            note_line(error.what());
            damaged_ = true;
            on_damage();
        }
    });
}

} // namespace kvmserver
