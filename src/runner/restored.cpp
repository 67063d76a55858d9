#include "src/runner/restored.hpp"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <exception>
#include <future>

#include <fmt/format.h>

#include "src/capture/large_pages.hpp"
#include "src/common/environment.hpp"
#include "src/runner/request_machine.hpp"
#include "src/setup/huge_pages.hpp"
#include "src/setup/report.hpp"
#include "src/snapshot/cpu_check.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/machine/image_memory.hpp"
#include "tinykvm/machine/large_pages.hpp"
#include "tinykvm/machine/late_env.hpp"
#include "tinykvm/machine/restore.hpp"

namespace kvmserver {

using namespace tinykvm;

Restored::Restored(SnapshotReader reader, std::shared_ptr<const PageCache> cache, const Options& options,
                   Sockets sockets, const ImageChange& change, Ahead ahead) {
    require_guest_abi(reader, abi::kVersion);
    const MachineState state = reader.state();
    const std::string name = reader.path().string();
    memory_ = Image::create(state.frames, std::move(ahead.memory));
    memory_->want_huge_pages(options.huge_pages.main);
    loader_ = std::make_shared<SnapshotLoader>(std::move(reader), std::move(cache), *memory_);
    memory_->set_loader(loader_);
    // A thread unpacks the hot part from its beginning while this one prepares KVM, the VMs and the sockets. Then this
    // one unpacks from the end until they meet. More threads would not help: writes to one memfd wait for each other.
    std::atomic<std::size_t> end = loader_->hot_chunks();
    auto front = std::async(std::launch::async, [&] {
        std::size_t chunk = 0;
        for (; chunk < end; ++chunk)
            loader_->load_chunks(chunk, chunk + 1, stop_);
        return chunk;
    });
    LargeCopies large;
    if (!(change.apply && change.makes_machines) && loader_->caches())
        large = find_large(state.large_pages, loader_->cache());
    first_chunks_ = end = loader_->hot_chunks_without(large.hot);

    setup_ = set_up_restored(options, state, ahead.setup ? std::move(ahead.setup) : begin_restored());
    const CpuDifference cpu = compare_cpu(state.cpu, cpu_state(setup_->env.cpu));
    if (!cpu.compatible())
        throw UserError(
            ExitCode::bad_snapshot,
            fmt::format("{}: {}; this host's CPU lacks them: build the snapshot here, or with --cpu x86-64-v2", name,
                        cpu.text()));
    const unsigned host_bits = kvm::physical_bits(setup_->env.cpu);
    setup_->env.cpu = guest_cpu(state.cpu);
    const bool large_reach = std::min(host_bits, kvm::physical_bits(setup_->env.cpu)) >= LargePages::kPhysicalBits;
    if (sockets == Sockets::open)
        setup_->listeners->open(state.listeners);
    try {
        for (std::size_t chunk = first_chunks_; chunk-- > 0;)
            loader_->load_chunks(chunk, chunk + 1, stop_);
    } catch (...) {
        front.get(); // throws the cause if that thread met it first
        throw;
    }
    SnapshotReader::drop_buffers(); // for long it may not unpack anything again
    // That thread may have been faster than the search for large pages.
    first_chunks_ = std::max(first_chunks_, front.get());
    hot_bytes_ = std::uint64_t{loader_->end_of(first_chunks_)} * kPageSize;
    memory_->give_back_prepared(loader_->end_of(first_chunks_));
    all_kept_ = large.all && loader_->hot_from_cache() >= first_chunks_;
    if (options.verbose.general && loader_->hot_from_cache() > 0)
        note_line(fmt::format("{}: {} of {} hot chunks and {} of {} large pages were kept unpacked in {}", name,
                              loader_->hot_from_cache(), first_chunks_, large.at.size(), state.large_pages.size(),
                              loader_->cache().where()));
    std::vector<std::string> warnings;
    image_ = from_state(state, memory_, *setup_->policy, warnings);
    for (const std::string& warning : warnings)
        note_line(warning);
    if (is_callable(*image_))
        throw UserError(ExitCode::bad_snapshot,
                        fmt::format("{}: the program in it waits for calls of its functions, not for connections; "
                                    "restore it with the library tinykvm (docs/LIBRARY.md)",
                                    name));
    const std::string& program = setup_->program.path;
    env_problems_ = set_late_env(*image_, *memory_, options.env,
                                 copies_environment(program) ? program.substr(program.rfind('/') + 1) : "");
    const bool shadow_paging = setup_->env.kind.pvm_entry;
    if ((change.apply && !change.makes_machines) || change.recurs) {
        large_content_.emplace(*image_, state.large_pages);
        large_pages_ = state.large_pages;
        large_at_ = large.at;
    }
    if (change.apply && !change.makes_machines) {
        image_ = change.apply(*setup_, std::move(image_), changed_);
        if (large_content_->same_in(*image_, changed_))
            image_->large_pages = state.large_pages;
        else
            large = {};
        make_lazy(*image_, *memory_, shadow_paging, loader_->end_of(first_chunks_));
    } else {
        make_lazy(*image_, *memory_, shadow_paging);
    }
    if (memory_->huge_bytes() == 0) // else all of it is to be in the image itself
        loader_->map_cold_chunks();
    if (change.apply && change.makes_machines) {
        image_ = change.apply(*setup_, std::move(image_), changed_);
        make_lazy(*image_, *memory_, shadow_paging, loader_->end_of(first_chunks_));
    }
    if (uses_dirty_bits(*setup_, options))
        clear_marks(*image_, *memory_);
    // Use large pages only if they are within reach and do not overlap. Otherwise their content is loaded on first
    // touch.
    const std::uint64_t limit = LargePages::kAt.value / 4;
    if (large.pages && large_reach && memory_->bytes().size() < limit && setup_->env.limits.request_memory < limit)
        use_large(*image_, *memory_, std::move(large.pages), large.at);
    if (memory_->huge_bytes() != 0) {
        // Not behind the first request: the kernel maps no huge page for a machine that has copied pages before.
        loader_->load_chunks(first_chunks_, loader_->chunks(), stop_);
        tell_huge_pages(memory_->huge_bytes(), memory_->use_huge_pages(), options.verbose.general);
    }
}

Restored::~Restored() { stop_filling(); }

void Restored::stop_filling() {
    stop_ = true;
    stopper_.request();
    if (filler_.joinable())
        filler_.join();
}

void Restored::fill_behind(std::function<void()> on_damage) {
    filler_ = std::thread([this, on_damage = std::move(on_damage)] {
        try {
            fill();
        } catch (const std::exception& error) {
            note_line(error.what());
            damaged_ = true;
            on_damage();
        }
    });
}

void Restored::share_hot() {
    if (memory_->huge_bytes() != 0) // all of it is to be in the image itself
        return;
    const std::lock_guard lock(sharing_);
    try {
        loader_->share_hot(first_chunks_, image_->hot_files);
    } catch (const std::exception&) {
        // Out of mappings, or a file of the snapshot cannot be read any more: the process keeps its own memory.
    }
}

void Restored::replace_image(std::shared_ptr<MachineImage> image, std::span<const Frame> changed) {
    image_ = std::move(image);
    auto large = memory_->take_large(); // of an earlier image
    const bool same = large && large_content_ && large_content_->same_in(*image_, changed);
    make_lazy(*image_, *memory_, setup_->env.kind.pvm_entry, loader_->end_of(first_chunks_));
    if (!same)
        return;
    image_->large_pages = large_pages_;
    use_large(*image_, *memory_, std::move(large), large_at_);
}

// Waits; returns whether the background thread is to go on.
bool Restored::wait(int ms) {
    pollfd stopped{stopper_.fd(), POLLIN, 0};
    return ::poll(&stopped, 1, ms) == 0;
}

void Restored::fill() {
    // Leave the CPU to the first request: it is often the reason for the start.
    constexpr int kHeadStartMs = 100;
    if (!wait(kHeadStartMs))
        return; // nobody will need the rest
    memory_->give_back_unused();
    if (loader_->caches()) {
        // Find out what is missing before the priority drops: while the cache answers, others may wait for it.
        std::vector<std::size_t> chunks;
        std::vector<LargePageState> large;
        if (!all_kept_) {
            chunks = hot_without_copies(loader_->reader(), loader_->cache());
            large = large_without_copies(*image_, loader_->cache());
        }
        const sched_param none{};
        // Nobody waits for the rest: use only CPU time that requests leave over.
        ::sched_setscheduler(0, SCHED_IDLE, &none);
        if (!all_kept_) {
            const auto may_continue = [this] { return wait(0); };
            offer_chunks(loader_->reader(), loader_->cache(), chunks, may_continue); // for the next start
            offer_large(*image_, loader_->cache(), large, pages_of(loader_->reader()), may_continue);
            loader_->cache().make_room(); // it stats every copy, so not at each start
        }
        // Chunks are loaded when they are touched. Check ahead that they can be, if the process lives long enough.
        constexpr int kCheckMs = 5000;
        if (wait(kCheckMs))
            for (std::size_t chunk = first_chunks_; chunk < loader_->chunks() && wait(0); ++chunk)
                loader_->reader().check_stored(chunk);
        return;
    }
    // Pause between chunks to leave the CPU to requests. Do not lower the priority: a request may wait for the chunk
    // that is being loaded.
    constexpr int kPauseMs = 3;
    for (std::size_t chunk = first_chunks_; chunk < loader_->chunks() && wait(kPauseMs); ++chunk)
        loader_->load_chunks(chunk, chunk + 1, stop_);
}

} // namespace kvmserver
