#include "src/daemon/recompressor.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "src/common/clock.hpp"
#include "src/snapshot/compressed_chunk_cache.hpp"
#include "src/store/errors.hpp"
#include "src/store/snapshots/gc.hpp"
#include "src/store/snapshots/importer.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/read.hpp"

namespace kvmserver::daemon {

using namespace tinykvm;

namespace {

constexpr std::chrono::seconds kShortestPause{2}, kLongestPause{600};

// A file without a name on the store's file system, which has room for snapshots.
UniqueFd nameless_file(const std::filesystem::path& store) {
    UniqueFd file(::open((store / store::kTmp).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (!file) // not every file system has these
        file.reset(::memfd_create("kvmserver-snapshot", MFD_CLOEXEC));
    if (!file)
        throw_errno("make a file in " + (store / store::kTmp).string());
    return file;
}

// Facts without what compression changes.
SnapshotFacts apart_from_pieces(SnapshotFacts facts) {
    facts.pieces.clear();
    return facts;
}

// So that the next deploy from this machine has only new chunks to compress.
void keep(const Pressed& pressed, int file) {
    const CompressedChunkCache cache(FolderCache(default_cache_folder()), {0, pressed.total_raw});
    for (const PressedChunk& chunk : pressed.chunks) {
        std::vector<std::byte> stored(chunk.stored);
        if (read_at(file, chunk.offset, stored) == stored.size())
            cache.keep(chunk.sha256, chunk.hot, {chunk.filter, std::move(stored)});
    }
}

} // namespace

Recompressor::Recompressor(std::filesystem::path store, store::StoreOptions options, Examiner examiner,
                           Examinations& examinations, std::function<bool(const Digest&)> is_unused,
                           std::function<void(const std::string&)> note)
    : path_(std::move(store)), options_(std::move(options)), examiner_(std::move(examiner)),
      examinations_(examinations), is_unused_(std::move(is_unused)), note_(std::move(note)), pause_(kShortestPause) {}

Recompressor::~Recompressor() { stop(); }

void Recompressor::start() {
    thread_ = std::thread([this] { loop(); });
}

void Recompressor::stop() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable())
        thread_.join();
}

void Recompressor::look() {
    {
        const std::lock_guard lock(mutex_);
        looked_ = true;
    }
    changed_.notify_one();
}

void Recompressor::superseded(const Digest& snapshot) {
    {
        const std::lock_guard lock(mutex_);
        told_.push_back(snapshot);
        looked_ = true;
    }
    changed_.notify_one();
}

bool Recompressor::stopped() {
    const std::lock_guard lock(mutex_);
    return stop_;
}

// Until there may be something to do; false at the end.
bool Recompressor::wait() {
    std::unique_lock lock(mutex_);
    const auto woken = [this] { return looked_ || stop_; };
    if (superseded_.empty() && !again_)
        changed_.wait(lock, woken);
    const bool in_vain = !changed_.wait_for(lock, pause_, woken);
    pause_ = in_vain ? std::min(pause_ * 2, kLongestPause) : kShortestPause;
    looked_ = false;
    superseded_.insert(told_.begin(), told_.end());
    told_.clear();
    return !stop_;
}

void Recompressor::loop() {
    try {
        store::Store store(path_, options_); // a connection of its own: the daemon's notices the changes
        std::string said;
        while (wait()) {
            try {
                round(store);
            } catch (const std::exception& error) { // the store is busy or damaged
                if (std::exchange(said, error.what()) != error.what())
                    note_(fmt::format("snapshots are not compressed anew: {}", error.what()));
                again_ = true;
            }
        }
    } catch (const std::exception& error) {
        note_(fmt::format("snapshots are not compressed anew: {}", error.what()));
    }
}

void Recompressor::round(store::Store& store) {
    std::erase_if(superseded_,
                  [&](const Digest& digest) { return is_unused_(digest) && store::remove_snapshot(store, digest); });
    const std::int64_t version = store.data_version();
    if (version == seen_ && !again_)
        return;
    again_ = false;
    seen_ = version;
    for (const store::ToCompress& next : store::Functions(store).to_compress()) {
        if (stopped())
            return;
        if (failed_.contains(next.snapshot))
            continue;
        if (next.warms_until > now_ms()) { // another one will take its place
            again_ = true;
            continue;
        }
        try {
            compress(store, next);
        } catch (const store::NotFound&) { // removed meanwhile
        } catch (const ExaminersBusy&) {
            again_ = true;
        } catch (const store::IndexAway&) {
            again_ = true;
        } catch (const store::ChunksAway&) {
            again_ = true;
        } catch (const std::exception& error) {
            failed_.insert(next.snapshot);
            note_(fmt::format("the snapshot of {} v{} stays as large as it is until the next start: {}", next.function,
                              next.version, error.what()));
        }
    }
}

void Recompressor::compress(store::Store& store, const store::ToCompress& version) {
    store::Functions functions(store);
    const store::StoredSnapshot snapshot(store, version.snapshot);
    const UniqueFd file = nameless_file(path_);
    const auto pressed = examiner_.compress(snapshot, file.get(), [this] { return stopped(); });
    if (stopped())
        return;
    if (!pressed) { // nothing to do
        functions.compressed(version.function, version.version, version.snapshot, version.snapshot);
        return;
    }
    // What wrote the file may have been taken over by the snapshot: another process says what is in it.
    const SnapshotFacts facts = examinations_.of_file(file.get(), pressed->file_bytes);
    if (const auto before = examinations_.of_stored(snapshot);
        !before || apart_from_pieces(*before) != apart_from_pieces(facts))
        throw UserError(ExitCode::bad_snapshot, "compressed anew it would ask for something else");
    store::Importer importer(store);
    std::uint64_t at = 0;
    for (const std::uint64_t bytes : facts.pieces) {
        importer.put_part(file.get(), at, bytes, "a snapshot compressed anew");
        at += bytes;
    }
    const store::SnapshotHold hold = importer.commit();
    examinations_.learn(hold.digest(), facts);
    if (functions.compressed(version.function, version.version, version.snapshot, hold.digest())) {
        superseded_.insert(version.snapshot);
        pause_ = kShortestPause;
    }
    if (version.tenant.empty())
        keep(*pressed, file.get());
}

} // namespace kvmserver::daemon
