// An image that comes out of a snapshot file: the hot part at once, the rest when it is touched or behind.
#pragma once
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "src/snapshot/reader.hpp"
#include "src/snapshot/unpacked.hpp"
#include "tinykvm/memory/image.hpp"

namespace kvmserver {

class SnapshotLoader final : public tinykvm::ImageLoader {
public:
    // The bytes and the memfd of the image must outlive the loader's last use; the image holds the loader, not the other way round.
    // `unpacked`: of its hot part, which is then taken from there as far as it is sound.
    SnapshotLoader(SnapshotReader reader, std::optional<UnpackedCopy> unpacked, const tinykvm::Image& image);

    void load(std::uint32_t frame) override;
    bool loaded(std::uint32_t frame) const override;
    bool is_hole(std::uint32_t frame) const override { return !reader_.chunk_of(frame); }
    // Loads chunks [first, last) of the file's order; for threads that fill behind.
    void load_chunks(std::size_t first, std::size_t last, const std::atomic<bool>& stop);
    std::size_t chunks() const { return states_.size(); }
    std::size_t hot_chunks() const { return hot_; }
    const SnapshotReader& reader() const { return reader_; }

private:
    enum State : std::uint8_t { absent, loading, present, failed };
    void load_chunk(std::size_t chunk);

    SnapshotReader reader_;
    std::optional<UnpackedCopy> unpacked_;
    std::span<std::byte> image_;
    int memfd_;
    std::vector<std::atomic<std::uint8_t>> states_;
    std::size_t hot_ = 0;
    std::mutex mutex_;
    std::condition_variable arrived_;
};

} // namespace kvmserver
