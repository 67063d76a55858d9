// Finds the random state in an image that must be refilled for every invocation (src/unique).
#pragma once
#include <string>
#include <vector>

#include "tinykvm/machine/machine.hpp"

namespace kvmserver {

// All of it, as far as it is found, for set_random_state(). Reads all of the program's memory, so that the whole image
// is loaded.
std::vector<tinykvm::EntropyRegion> random_state_in(const tinykvm::MachineImage& image);
// Sets image.entropy and image.keep_pid.
void set_random_state(tinykvm::MachineImage& image, std::vector<tinykvm::EntropyRegion> regions);

// Sets image.entropy and image.keep_pid. Reads all of the program's memory, so that the whole image is loaded. `name`
// is the program's name, for one log line per region found; "" logs nothing. Returns why regions may be missing; ""
// when the list is complete.
std::string find_random_state(tinykvm::MachineImage& image, const std::string& name);

} // namespace kvmserver
