// A snapshot brought back: its image, ready to be cloned, and all that clones need. The part that the first request does not
// need is filled in behind.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "src/runner/setup.hpp"
#include "src/runner/snapshot_image.hpp"
#include "src/snapshot/unpacked.hpp"

namespace kvmserver {

class Restored {
public:
    // Throws UserError, HostError. The listening sockets are opened when `listen` says so.
    enum class Sockets { open, none };
    Restored(SnapshotReader reader, const Options& options, Sockets sockets);
    ~Restored(); // ends the filling
    Restored(const Restored&) = delete;
    Restored& operator=(const Restored&) = delete;

    Setup& setup() { return *setup_; }
    const std::shared_ptr<tinykvm::MachineImage>& image() const { return image_; }
    // Once, when the machines are being made: later requests then do not wait for parts of the file, and a damaged one is found
    // out. `on_damage` is called on another thread.
    void fill_behind(std::function<void()> on_damage);
    bool damaged() const { return damaged_; }

private:
    const UnpackedCache cache_;
    bool keep_unpacked_ = false;
    std::shared_ptr<tinykvm::Image> memory_;
    std::shared_ptr<SnapshotLoader> loader_;
    std::unique_ptr<Setup> setup_;
    std::shared_ptr<tinykvm::MachineImage> image_;
    std::atomic<bool> stop_{false}, damaged_{false};
    Stopper stopper_;
    std::thread filler_;
};

} // namespace kvmserver
