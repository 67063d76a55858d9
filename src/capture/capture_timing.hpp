// Chooses the moment at which the image is taken. Warm-up may end at a bad one: V8's young generation is nearly full,
// so that each invocation first collects it (6 ms instead of 0.5), or a large collection is due some seconds later (38
// ms).
#pragma once
#include <functional>
#include <memory>

#include "src/setup/boot.hpp"
#include "src/setup/setup.hpp"

namespace kvmserver {

using OnImage = std::function<void(std::shared_ptr<tinykvm::MachineImage>)>;
struct Taken {
    std::shared_ptr<tinykvm::MachineImage> image;
    bool cold = false; // as `on_cold` got it: --warmup auto helped nothing
};

// Makes the image of a program that prepare_for_image() has prepared; consumes `booted`. After a warm-up, measures an
// invocation and compares it with the cheapest warm-up request. While it costs a multiple of that, the program gets a
// few more requests (logged with --verbose). Returns the image of the cheapest moment measured. `on_cold` gets a copy
// of the image as it is before --warmup auto, which may use the same memory. Both images are those after the
// before-snapshot hook, if there is one.
Taken take_image(const Setup& setup, const Options& options, Booted booted, const OnImage& on_cold = {});

} // namespace kvmserver
