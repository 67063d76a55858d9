// How entropy regions tell that a program bears another process number although must_keep_pid() says no.
#pragma once
#include <algorithm>
#include <span>
#include <string_view>

#include "tinykvm/machine/state.hpp"

namespace tinykvm {

// The source of regions that hold the process number of asyncio's running loop. Where no loop runs there is one with a
// constant that changes nothing: a snapshot has no other place to say so.
inline constexpr std::string_view kRunningLoopSource = "asyncio's running loop";

inline bool knows_running_loop(std::span<const EntropyRegion> regions) {
    return std::ranges::any_of(regions,
                               [](const EntropyRegion& region) { return region.source == kRunningLoopSource; });
}

} // namespace tinykvm
