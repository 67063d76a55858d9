#include <optional>

#include "src/runner/announce.hpp"
#include "src/runner/cache_client.hpp"
#include "src/runner/outside.hpp"
#include "src/runner/own_jail.hpp"
#include "src/runner/restored.hpp"
#include "src/runner/workers.hpp"
#include "src/setup/report.hpp"
#include "src/setup/storage.hpp"
#include "src/snapshot/folder_cache.hpp"
#include "tinykvm/base/descriptor_table.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

constexpr int kDescriptorsOfRun = 256; // copies of a snapshot's chunks are the most of them

std::uint64_t pages_in(const SnapshotReader& reader) {
    std::uint64_t pages = 0;
    for (const ChunkInfo& chunk : reader.chunks())
        for (const ChunkRun& run : chunk.runs)
            pages += run.count;
    return pages;
}

} // namespace

int run_snapshot(const Options& options) {
    const std::uint64_t begin = host_mono_ns();
    reserve_descriptors(kDescriptorsOfRun);
    const auto cache = std::make_shared<const FolderCache>(options.cache);
    std::optional<CacheOutside> outside; // first: what follows starts threads
    if (options.jail != jail::Mode::off && cache->usable())
        outside.emplace(*cache);
    OwnJail jail(options);
    StopSignal::instance();
    std::optional<Storage> storage;
    if (options.storage)
        storage.emplace(*options.storage);
    if (storage && options.jail != jail::Mode::off && !options.storage->permissions.all)
        storage->setup().policy->ask_about_host(existence_outside());
    Restored::Ahead ahead;
    try {
        ahead.setup = begin_restored(); // probes the host while the file is read
    } catch (const UserError&) {
        // No KVM. Problems of the file are reported first.
    }
    SnapshotReader reader = SnapshotReader::open(options.snapshot_file);
    UniqueFd copies;
    if (outside && worth_copies(reader))
        copies = std::move(*outside).allow(pages_in(reader) * kPageSize);
    outside.reset();
    Restored restored(std::move(reader), cache, options, Restored::Sockets::open, {}, std::move(ahead));
    for (const std::string& problem : restored.env_problems())
        note_line("--env: " + problem);
    if (copies)
        restored.use_cache(std::make_shared<CacheClient>(std::move(copies)));
    jail.enter(restored.setup(), options, false, storage ? &storage->setup() : nullptr);
    if (storage) {
        if (!storage->boot())
            return storage->exit_code();
        restored.setup().env.neighbours = &storage->first();
    }
    announce(restored.setup(), options, static_cast<double>(host_mono_ns() - begin) / 1e9, "restored");
    restored.fill_behind([] { StopSignal::instance().request(); });
    const int code = serve(restored.setup(), options, restored.image(), storage ? &*storage : nullptr);
    if (storage && options.stats)
        storage->print_stats();
    if (storage && storage->exit_code() != 0)
        return storage->exit_code();
    return restored.damaged() ? static_cast<int>(ExitCode::bad_snapshot) : code;
}

} // namespace kvmserver
