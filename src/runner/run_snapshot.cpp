#include "src/runner/announce.hpp"
#include "src/runner/restored.hpp"
#include "src/runner/workers.hpp"
#include "src/snapshot/folder_cache.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver {

using namespace tinykvm;

int run_snapshot(const Options& options) {
    const std::uint64_t begin = host_mono_ns();
    StopSignal::instance();
    Restored::Ahead ahead;
    try {
        ahead.setup = begin_restored(); // finds out about the host while the file is looked at
    } catch (const UserError&) {
        // Without KVM. What is wrong with the file is told first.
    }
    Restored restored(SnapshotReader::open(options.snapshot_file),
                      std::make_shared<FolderCache>(options.cache), options, Restored::Sockets::open, {},
                      std::move(ahead));
    for (const std::string& problem : restored.env_problems())
        note_line("--env: " + problem);
    announce(restored.setup(), options, static_cast<double>(host_mono_ns() - begin) / 1e9, "restored");
    restored.fill_behind([] { StopSignal::instance().request(); });
    const int code = serve(restored.setup(), options, restored.image());
    return restored.damaged() ? static_cast<int>(ExitCode::bad_snapshot) : code;
}

} // namespace kvmserver
