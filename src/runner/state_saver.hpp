// Saves the state of a function process's machine: at its end, or while it goes on.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "src/common/digest.hpp"
#include "src/setup/setup.hpp"
#include "src/snapshot/state_file.hpp"
#include "tinykvm/base/unique_fd.hpp"
#include "tinykvm/machine/machine.hpp"

namespace kvmserver {

class StateSaver {
public:
    explicit StateSaver(const Setup& setup) : setup_(setup) {}
    ~StateSaver() { finish(); }
    StateSaver(const StateSaver&) = delete;
    StateSaver& operator=(const StateSaver&) = delete;

    // Waits for save_behind(). Call it before anything writes to the memory of its image.
    void finish();
    // These frames may differ from what was saved.
    void changed(std::span<const tinykvm::Frame> frames) { since_.insert(since_.end(), frames.begin(), frames.end()); }
    // Saves the state of a machine that is like `image` in the file, which is on the disk then. What the file has is
    // kept, and only the difference added, if it is the one of the last save_behind(). `all`: the frames that differ
    // from the snapshot. Throws HostError.
    void save(const tinykvm::MachineImage& image, int file, const Digest& base, std::vector<tinykvm::Frame> all);
    // The same on a thread, while machines of the image run. `find`: the image does not know its random state, which is
    // looked for first. Tells `done` once the state is saved (Kind::checkpoint), and closes it; prints a line if it
    // cannot be. Call after finish().
    void save_behind(std::shared_ptr<const tinykvm::MachineImage> image, bool find, tinykvm::UniqueFd file,
                     const Digest& base, std::vector<tinykvm::Frame> all, tinykvm::UniqueFd done);
    // After finish(): what was found. Nothing if nothing was looked for, or it could not be.
    const std::optional<std::vector<tinykvm::EntropyRegion>>& found() const { return found_; }

private:
    struct Plan { // what to write
        WrittenState before;
        std::vector<tinykvm::Frame> frames; // ascending
    };
    Plan plan_for(int file, std::vector<tinykvm::Frame> all);

    const Setup& setup_;
    tinykvm::UniqueFd file_; // of the last save_behind(); empty: it failed, or there was none
    WrittenState written_;
    std::optional<std::vector<tinykvm::EntropyRegion>> found_;
    std::vector<tinykvm::Frame> since_;
    std::thread thread_;
};

} // namespace kvmserver
