#include "src/embed/callable_image.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "src/embed/callable_machine.hpp"
#include "src/embed/symbol_table.hpp"
#include "src/event_loop/event_loop.hpp"
#include "src/snapshot/cpu_check.hpp"
#include "src/snapshot/plan.hpp"
#include "src/snapshot/reader.hpp"
#include "src/snapshot/writer.hpp"
#include "src/unique/finder.hpp"
#include "src/unique/machine_memory.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/text.hpp"
#include "tinykvm/machine/image_memory.hpp"
#include "tinykvm/machine/loop_region.hpp"
#include "tinykvm/machine/renumber.hpp"
#include "tinykvm/machine/restore.hpp"

namespace kvmserver::embed {

using namespace tinykvm;

namespace {

// Why a boot did not end with a ready program.
std::string why_not_ready(const World& world, const EventLoop& loop, LoopEnd end, const Settings& settings) {
    const std::string ready = settings.ready_at.empty() ? "before it called tinykvm_ready()"
                                                        : fmt::format("before it reached {}", brief(settings.ready_at));
    std::string text;
    switch (end) {
    case LoopEnd::timeout:
        text = fmt::format("was not ready within {:.4g} s (max-boot-time)", settings.limits.boot_seconds);
        break;
    case LoopEnd::stuck: text = fmt::format("waits for what will never come, {}", ready); break;
    default: {
        const Stop& stop = loop.stop();
        text = stop.kind == StopKind::exited      ? fmt::format("exited with status {} {}", stop.status, ready)
               : stop.kind == StopKind::no_memory ? stop.report + "; raise max-main-memory"
                                                  : stop.report;
    }
    }
    const auto advice = loop.refusals().advice();
    return fmt::format("{}: {}{}", world.program.name, text, advice.empty() ? "" : "; " + advice.front());
}

// Generators of random numbers that every machine would go on with alike.
void find_random_state(MachineImage& image) {
    const unique::MachineMemory memory(image);
    image.entropy = unique::find_entropy(memory.view()).regions;
    image.keep_pid = must_keep_pid(*image.regions) && !knows_running_loop(image.entropy);
}

} // namespace

std::shared_ptr<const CallableImage> CallableImage::boot(const Settings& settings, Listener listener) {
    const std::shared_ptr<World> world = world_for_program(settings, std::move(listener));
    Listeners listeners;
    listeners.set_dry(true);
    listeners.set_policy(world->policy.get());
    const Stopper stopper;
    EventLoop loop(
        listeners, [&](const std::string& line) { world->log(printable(line)); }, stopper);
    loop.keep_refusals(true);
    loop.set_exists([&](const std::string& path) { return world->policy->is_on_host(path); });
    if (world->listener.output)
        loop.set_output(world->listener.output);
    auto machine = Machine::boot(world->env, world->program, loop);
    if (!settings.ready_at.empty()) {
        const ReadMemory memory = [&](std::uint64_t at, std::span<std::byte> to) {
            return machine->space().read(GuestVirt(at), to);
        };
        const GuestVirt at(find_symbol(machine->space().regions(), world->program.path, memory, settings.ready_at));
        if (!machine->ready_at(at))
            throw UserError(ExitCode::usage, fmt::format("ready-at: {} is not in code of {}", brief(settings.ready_at),
                                                         settings.program));
    }
    EventLoop::Until until;
    until.ready = true;
    until.limit_ns = static_cast<std::uint64_t>(settings.limits.boot_seconds * 1e9);
    until.all_waits_count = true;
    if (const LoopEnd end = loop.run(*machine, until); end != LoopEnd::quiescent)
        throw UserError(ExitCode::unreachable, why_not_ready(*world, loop, end, settings));
    auto image = std::move(*machine).into_image();
    machine.reset();
    find_random_state(*image);
    if (world->env.kind.dirty_bits)
        clear_marks(*image, *image->image);
    return std::shared_ptr<const CallableImage>(new CallableImage(world, std::move(image)));
}

std::shared_ptr<const CallableImage> CallableImage::restore(const std::string& file, const Settings* settings,
                                                            Listener listener) {
    SnapshotReader reader = SnapshotReader::open(file);
    require_guest_abi(reader, abi::kVersion);
    const MachineState state = reader.state();
    const std::shared_ptr<World> world = world_for_snapshot(state, settings, std::move(listener));
    const CpuDifference cpu = compare_cpu(state.cpu, cpu_state(world->env.cpu));
    if (!cpu.compatible())
        throw UserError(ExitCode::bad_snapshot,
                        fmt::format("{}: {}; this host's CPU lacks them: save it here, or boot it with the option cpu",
                                    file, cpu.text()));
    world->env.cpu = guest_cpu(state.cpu);
    const auto memory = Image::create(state.frames);
    const auto loader = std::make_shared<SnapshotLoader>(std::move(reader), std::make_shared<FolderCache>(""), *memory);
    memory->set_loader(loader);
    const std::atomic<bool> never{false};
    loader->load_chunks(0, loader->hot_chunks(), never);
    std::vector<std::string> warnings;
    auto image = from_state(state, memory, *world->policy, warnings);
    for (const std::string& warning : warnings)
        world->log(printable(warning));
    make_lazy(*image, *memory, world->env.kind.pvm_entry);
    if (world->env.kind.dirty_bits)
        clear_marks(*image, *memory);
    std::shared_ptr<const CallableImage> made(new CallableImage(world, std::move(image)));
    if (!is_callable(*made->image_))
        throw UserError(ExitCode::bad_snapshot,
                        fmt::format("{}: the program in it waits for connections, not for calls of its functions; "
                                    "serve it by kvmserver snaprun",
                                    file));
    return made;
}

void CallableImage::save(const std::string& file, const std::function<void(CallableMachine&)>& rehearse) const {
    MachineImage from = *image_;
    std::vector<Frame> hot;
    {
        CallableMachine trial(shared_from_this(), false, true);
        trial.machine().forget_accessed();
        if (rehearse)
            rehearse(trial);
        const Machine::AccessedFrames used = trial.machine().accessed_frames();
        hot = used.machine;
        hot.insert(hot.end(), used.program.begin(), used.program.end());
        from.working_set = trial.machine().written_frames();
        from.headroom = static_cast<std::uint32_t>(trial.machine().memory_bytes() / kPageSize);
    }
    for (Frame frame = 0; frame < from.image->frames(); ++frame)
        from.image->ensure(frame);
    const auto image = renumber(from, order_of_chunks(from.image->bytes(), from.root.value, hot, from.image->fd()));
    std::iota(hot.begin(), hot.end(), Frame{0});
    image->headroom = from.headroom;
    const MachineState state = to_state(*image, world_->env, world_->program);
    write_snapshot(file, state, image->image->bytes(), hot, 0, image->image->fd());
}

std::uint64_t CallableImage::symbol(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    if (const auto known = symbols_.find(name); known != symbols_.end())
        return known->second;
    const ReadMemory memory = [this](std::uint64_t from, std::span<std::byte> to) {
        return read_image(*image_, GuestVirt(from), to);
    };
    const std::uint64_t at = find_symbol(*image_->regions, world_->program.path, memory, name);
    symbols_.emplace(name, at);
    return at;
}

} // namespace kvmserver::embed
