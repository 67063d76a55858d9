// Lists in an image the random state that every invocation must find filled anew (src/unique).
#pragma once
#include <string>

#include "tinykvm/machine/machine.hpp"

namespace kvmserver {

// Sets image.entropy and image.keep_pid. Looks at all the program's memory, so that all of the image is loaded. `name`:
// of the program, to tell what was found in a line each; "" tells nothing. Returns why something may have been left
// out, "" when that was all.
std::string find_random_state(tinykvm::MachineImage& image, const std::string& name);

} // namespace kvmserver
