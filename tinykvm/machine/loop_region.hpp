// Marks a program whose process number may change although must_keep_pid() says otherwise.
#pragma once
#include <algorithm>
#include <span>
#include <string_view>

#include "tinykvm/machine/state.hpp"

namespace tinykvm {

// EntropyRegion::source of regions that hold the process number of asyncio's running loop. If no loop was running, the
// snapshot has one region of this source with a constant that changes nothing: there is no other field to record it.
inline constexpr std::string_view kRunningLoopSource = "asyncio's running loop";

inline bool knows_running_loop(std::span<const EntropyRegion> regions) {
    return std::ranges::any_of(regions,
                               [](const EntropyRegion& region) { return region.source == kRunningLoopSource; });
}

} // namespace tinykvm
