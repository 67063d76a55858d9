// Warm-up requests before the image is taken, and the steps between them and the image.
#pragma once
#include <cstdint>
#include <string>

#include "src/setup/boot.hpp"
#include "src/setup/setup.hpp"

namespace kvmserver {

// Sends the warm-up requests one after another, in `rounds`, so that what they warm is in the image. Returns the CPU
// time of the cheapest round in nanoseconds; 0 when there were none. Throws UserError when a request is not answered.
// From now on the program's output goes to `booted.hidden`, of which the last lines are shown before that error.
// `told`: requests before these, and of all rounds (0: unknown), for the phase that it tells.
struct WarmUpCount {
    std::uint64_t before = 0, all = 0;
};
std::uint64_t warm_up(Booted& booted, const Options& options, unsigned rounds, const WarmUpCount& told = {});
// Sends one of them, as client number `client` (WarmupRequest::wire). Returns its CPU time in nanoseconds; its reply
// and status are in `booted`. Throws as warm_up().
std::uint64_t warm_up_once(Booted& booted, const Options& options, const WarmupRequest& request, unsigned client);

// Runs timers that must not be due in every invocation (run_out_timers). If the clock pauses, those of the next two
// seconds: what they end is short-lived and would otherwise last for ever (Node keeps the text of the Date header for a
// second). If the clock continues, those of the next minutes.
LoopEnd run_out_timers(Booted& booted, const Options& options);

// All steps between boot and image: a warm-up with a fixed number of rounds, and running out timers. Returns false
// when the program ended meanwhile or was asked to end. The reason has been logged then, and `booted` is as after a
// failed boot.
bool prepare_for_image(Booted& booted, const Options& options, const std::string& name);

} // namespace kvmserver
