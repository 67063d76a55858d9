// Which pages a restored machine needs first.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/setup/setup.hpp"

namespace kvmserver {

// Frames that a machine cloned from the image uses to answer GET --warmup-path, found by letting two answer
// it in trials whose effects stay inside: it may read, but not write, connect or print. A program that does
// not answer HTTP gives the frames of what it did do. The guest kernel's own frames and the page tables come
// first.
struct TrialPages {
    std::vector<std::uint32_t> hot; // in the order they should be unpacked
    std::vector<tinykvm::FrameRun> written;
    std::uint32_t headroom = 0; // frames that it got besides
    bool answered = false;      // as a web server does
};
TrialPages trial_invocation(const Setup& setup, const Options& options,
                            std::shared_ptr<const tinykvm::MachineImage> image);

// Throws UserError when a snapshot could not be written there: no such folder, no permission, a folder.
void check_output(const std::string& path);

} // namespace kvmserver
