// A restored snapshot: its image, ready to be cloned, and all that clones need. What the first request does not need is
// loaded in the background.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "src/event_loop/stop.hpp"
#include "src/setup/setup.hpp"
#include "src/snapshot/image_loader.hpp"
#include "src/snapshot/page_cache.hpp"
#include "tinykvm/machine/large_pages.hpp"

namespace kvmserver {

// What becomes of the image before any other machine is made of it.
struct ImageChange {
    // What it returns, with the same memory, replaces the image. Appends to `changed` the frames whose bytes differ
    // from the snapshot then. Empty: no change.
    std::function<std::shared_ptr<tinykvm::MachineImage>(const Setup&, std::shared_ptr<tinykvm::MachineImage>,
                                                         std::vector<tinykvm::Frame>& changed)>
        apply;
    bool makes_machines = false; // of the image, which must be ready for that; it gets no large pages then
    bool recurs = false;         // Restored::replace_image() will be called
};

class Restored {
public:
    enum class Sockets { open, none }; // whether to open the sockets that the program listened on
    // What can be prepared before the snapshot is known.
    struct Ahead {
        std::unique_ptr<Setup> setup; // by begin_restored()
        tinykvm::ImageMemory memory;
    };
    // Throws UserError, HostError.
    Restored(SnapshotReader reader, std::shared_ptr<const PageCache> cache, const Options& options, Sockets sockets,
             const ImageChange& change = {}, Ahead ahead = {});
    ~Restored(); // stops the background loading
    Restored(const Restored&) = delete;
    Restored& operator=(const Restored&) = delete;

    Setup& setup() { return *setup_; }
    const std::shared_ptr<tinykvm::MachineImage>& image() const { return image_; }
    // Starts the background thread; call once, while the machines are being made. It finds damage in the file and keeps
    // copies for the next start. Without a cache it loads the rest, so that later requests do not wait for it. (With
    // --hugepages all is loaded before.)
    // `on_damage` is called on another thread.
    void fill_behind(std::function<void()> on_damage);
    // Replaces the cache that copies are requested from. Only while there are no other threads.
    void use_cache(std::shared_ptr<const PageCache> cache) { loader_->use_cache(std::move(cache)); }
    // Maps hot pages that the cache has as well from there, unless the process has a machine. Thread-safe.
    void share_hot();
    // Waits until that thread has ended. Call it before anything else writes to the image.
    void stop_filling();
    bool damaged() const { return damaged_; }
    // One line for each variable of Options::env that did not fit (set_late_env) and that the program will not see.
    const std::vector<std::string>& env_problems() const { return env_problems_; }
    // Takes `image`, a later one with the same memory, in place of the image. After stop_filling(), and while there are
    // no machines. Those of this image are not reset. `changed`: the frames whose bytes differ from the snapshot.
    void replace_image(std::shared_ptr<tinykvm::MachineImage> image, std::span<const tinykvm::Frame> changed);
    // Frames whose bytes differ from the snapshot since ImageChange::apply().
    const std::vector<tinykvm::Frame>& changed() const { return changed_; }
    std::uint64_t hot_bytes() const { return hot_bytes_; } // bytes in memory before the first request

private:
    bool wait(int ms);
    void fill();

    std::uint64_t hot_bytes_ = 0;
    std::size_t first_chunks_ = 0; // the leading chunks that were loaded before the constructor returned
    bool all_kept_ = true;         // these chunks and all large pages were in the cache
    std::vector<std::string> env_problems_;
    std::shared_ptr<tinykvm::Image> memory_;
    std::shared_ptr<SnapshotLoader> loader_;
    std::unique_ptr<Setup> setup_;
    std::shared_ptr<tinykvm::MachineImage> image_;
    std::vector<tinykvm::Frame> changed_;
    std::optional<tinykvm::LargeContent> large_content_; // if the image is or may be replaced, as are:
    std::vector<tinykvm::LargePageState> large_pages_;
    std::vector<tinykvm::GuestVirt> large_at_;
    std::atomic<bool> stop_{false}, damaged_{false};
    std::mutex sharing_; // one thread calls SnapshotLoader::share_hot()
    Stopper stopper_;
    std::thread filler_;
};

} // namespace kvmserver
