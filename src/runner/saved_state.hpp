// Suspends machines that keep their state, and resumes them.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/common/digest.hpp"
#include "src/setup/setup.hpp"
#include "tinykvm/machine/machine.hpp"

namespace kvmserver {

// What a saved state is relative to. The same for a snapshot and for one that was compressed anew.
Digest base_of(const tinykvm::MachineState& snapshot);

// The image of a machine that goes on from a saved state. `image` is that of the snapshot, with the memory that the
// result takes over; no machine of it may be used. `sizes`: how much of the file is the state, again and again, as long
// as it grows. It may wait; nothing: it is complete. `changed`: the frames that differ from the snapshot, for
// StateSaver. Throws UserError (bad_snapshot) that begins with `name`, HostError.
std::shared_ptr<tinykvm::MachineImage> resume_state(const Setup& setup, const tinykvm::MachineImage& image, int file,
                                                    const Digest& base, const std::string& name,
                                                    const std::function<std::optional<std::uint64_t>()>& sizes,
                                                    std::vector<tinykvm::Frame>& changed);

// The image of a machine that waits for connections and has none, for StateSaver, or for a machine that goes on from
// there. `memory`: that of its image. The result tells which frames differ from the image, and which nothing maps. The
// machine must not be used afterwards. `regions`: the random state of its image, if that was found after the machine
// had been made of it.
struct MergedMachine {
    std::shared_ptr<tinykvm::MachineImage> image;
    bool knows_random_state = false; // otherwise it has none set, and must not be restored elsewhere
    std::vector<tinykvm::Frame> changed, unused;
};
MergedMachine image_of(tinykvm::Machine&& machine, std::shared_ptr<tinykvm::Image> memory,
                       const std::vector<tinykvm::EntropyRegion>* regions);

} // namespace kvmserver
