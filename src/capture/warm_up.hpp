// Requests of our own that a program answers before its image is taken, and what is done between them and the image.
#pragma once
#include <cstdint>
#include <string>

#include "src/setup/boot.hpp"
#include "src/setup/setup.hpp"

namespace kvmserver {

// Serves `requests` requests over connections of our own, so that what they warm is in the image. Returns the CPU time
// of the cheapest of them, in nanoseconds; 0 for none. Throws UserError when one is not answered.
std::uint64_t warm_up(Booted& booted, const Options& options, unsigned requests);

// Lets those timers run out that are not to be due in every invocation (run_out_timers). Where the clock pauses these
// are the ones of the next two seconds: what they end is short-lived (Node keeps the text of the Date header for a
// second) and would else live for ever. Where it continues, those of the next minutes.
LoopEnd run_out_timers(Booted& booted, const Options& options);

// All that comes between the boot and the image: the warm-up that has a number, and nothing left to do that a timer has
// put off. False when the program ended meanwhile or was asked to: told, and `booted` is as after a boot that failed.
bool prepare_for_image(Booted& booted, const Options& options, const std::string& name);

} // namespace kvmserver
