// Finds the pages that a restored machine needs first.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/capture/unique_check.hpp"
#include "src/setup/setup.hpp"

namespace kvmserver {

// Pages that a machine cloned from the image uses to answer the warm-up requests. Two clones answer them at the
// same time, in trials whose effects stay inside: they may read, but not write, connect or print. If the program does
// not answer HTTP, the result is what it did touch. The guest kernel's own frames and the page tables come first.
struct TrialPages {
    std::vector<std::uint32_t> hot; // in the order in which they should be unpacked
    std::vector<tinykvm::FrameRun> written;
    std::uint32_t headroom = 0; // number of frames allocated beyond the image
    Tried tried;                // answered: with HTTP
};
TrialPages trial_invocation(const Setup& setup, const Options& options,
                            const std::shared_ptr<const tinykvm::MachineImage>& image);

// Throws UserError when a snapshot cannot be written to `path`: no such folder, no permission, or it is a folder.
void check_output(const std::string& path);

} // namespace kvmserver
