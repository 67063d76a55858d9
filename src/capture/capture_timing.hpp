// When the image is taken. Warm-up may end at a bad moment: V8's young generation is nearly full, and each invocation
// that begins there collects it first (6 ms instead of 0.5), or a large collection is due some seconds later (38 ms).
#pragma once
#include <memory>

#include "src/setup/boot.hpp"
#include "src/setup/setup.hpp"

namespace kvmserver {

// Makes the image of a program that prepare_for_image() has prepared; `booted` is used up. With warm-up, an invocation
// is tried and compared with the warm-up's cheapest request. Where it takes a multiple, the program is given a few
// requests more (said with
// --verbose), and the cheapest of the moments tried is taken.
std::shared_ptr<tinykvm::MachineImage> take_image(const Setup& setup, const Options& options, Booted booted);

} // namespace kvmserver
