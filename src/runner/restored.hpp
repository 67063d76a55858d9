// A snapshot brought back: its image, ready to be cloned, and all that clones need. The part that the first
// request does not need is filled in behind.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "src/event_loop/stop.hpp"
#include "src/setup/setup.hpp"
#include "src/snapshot/image_loader.hpp"
#include "src/snapshot/page_cache.hpp"

namespace kvmserver {

class Restored {
public:
    enum class Sockets { open, none }; // whether those that the program listened on are opened
    // Called with the setup and the image, before any machine is made of it; the image that it returns, with the same
    // memory, is used instead.
    using Change =
        std::function<std::shared_ptr<tinykvm::MachineImage>(const Setup&, std::shared_ptr<tinykvm::MachineImage>)>;
    // What can be done before it is known which snapshot it will be.
    struct Ahead {
        std::unique_ptr<Setup> setup; // by begin_restored()
        tinykvm::ImageMemory memory;
    };
    // Throws UserError, HostError.
    Restored(SnapshotReader reader, std::shared_ptr<const PageCache> cache, const Options& options, Sockets sockets,
             const Change& change = {}, Ahead ahead = {});
    ~Restored(); // ends the filling
    Restored(const Restored&) = delete;
    Restored& operator=(const Restored&) = delete;

    Setup& setup() { return *setup_; }
    const std::shared_ptr<tinykvm::MachineImage>& image() const { return image_; }
    // Once, when the machines are being made: a damaged file is found out, copies are kept for the next
    // start, and without a place for these the rest is loaded, so that later requests do not wait for it.
    // `on_damage` is called on another thread.
    void fill_behind(std::function<void()> on_damage);
    // From now on copies are asked for there. Not while there are threads.
    void use_cache(std::shared_ptr<const PageCache> cache) { loader_->use_cache(std::move(cache)); }
    bool damaged() const { return damaged_; }
    // Of Options::env: lines about those that the program will not see, for there is no room for them (set_late_env).
    const std::vector<std::string>& env_problems() const { return env_problems_; }
    std::uint64_t hot_bytes() const { return hot_bytes_; } // in memory, that were there before the first request

private:
    bool wait(int ms);
    void fill();

    std::uint64_t hot_bytes_ = 0;
    std::size_t first_chunks_ = 0; // so many were loaded at once
    bool all_kept_ = true;         // these, and all large pages, were in the cache
    std::vector<std::string> env_problems_;
    std::shared_ptr<tinykvm::Image> memory_;
    std::shared_ptr<SnapshotLoader> loader_;
    std::unique_ptr<Setup> setup_;
    std::shared_ptr<tinykvm::MachineImage> image_;
    std::atomic<bool> stop_{false}, damaged_{false};
    Stopper stopper_;
    std::thread filler_;
};

} // namespace kvmserver
