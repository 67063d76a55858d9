#include "src/runner/snapshot_image.hpp"

#include "tinykvm/base/error.hpp"

namespace kvmserver {

SnapshotLoader::SnapshotLoader(SnapshotReader reader, std::optional<UnpackedCopy> unpacked, const tinykvm::Image& image)
    : reader_(std::move(reader)), unpacked_(std::move(unpacked)), image_(image.bytes()), memfd_(image.fd()), states_(reader_.chunks().size()) {
    while (hot_ < reader_.chunks().size() && reader_.chunks()[hot_].hot)
        ++hot_;
}

bool SnapshotLoader::loaded(std::uint32_t frame) const {
    const auto chunk = reader_.chunk_of(frame);
    return !chunk || states_[*chunk].load(std::memory_order_acquire) == present;
}

void SnapshotLoader::load(std::uint32_t frame) {
    if (const auto chunk = reader_.chunk_of(frame))
        load_chunk(*chunk);
}

void SnapshotLoader::load_chunk(std::size_t chunk) {
    std::uint8_t seen = absent;
    if (states_[chunk].compare_exchange_strong(seen, loading, std::memory_order_acquire)) {
        try {
            const auto kept = unpacked_ ? unpacked_->chunk(chunk) : std::span<const std::byte>();
            reader_.place(chunk, kept.empty() ? reader_.unpack(chunk) : kept, image_, memfd_);
        } catch (...) {
            states_[chunk].store(failed, std::memory_order_release);
            const std::lock_guard lock(mutex_);
            arrived_.notify_all();
            throw;
        }
        states_[chunk].store(present, std::memory_order_release);
        const std::lock_guard lock(mutex_);
        arrived_.notify_all();
        return;
    }
    if (seen == loading) {
        std::unique_lock lock(mutex_);
        arrived_.wait(lock, [&] { return states_[chunk].load(std::memory_order_acquire) != loading; });
        seen = states_[chunk].load(std::memory_order_acquire);
    }
    if (seen == failed)
        throw tinykvm::UserError(tinykvm::ExitCode::bad_snapshot,
                                 reader_.path().string() + ": a part of the snapshot cannot be read; build it anew");
}

void SnapshotLoader::load_chunks(std::size_t first, std::size_t last, const std::atomic<bool>& stop) {
    for (std::size_t chunk = first; chunk < last && !stop.load(std::memory_order_relaxed); ++chunk)
        load_chunk(chunk);
}

} // namespace kvmserver
