// Checks of single values of a machine's state, for decoding as a whole (metadata.cpp) and as a stream
// (metadata_walk.cpp).
#pragma once
#include "src/snapshot/json_codec.hpp"
#include "tinykvm/machine/state.hpp"

namespace kvmserver {

inline constexpr JsonPath kDocument{nullptr, "document", 0};
inline constexpr JsonPath kMachine{&kDocument, "machine", 0};

// Each throws FormatError naming the place.
void check_region(const tinykvm::RegionState& region, const JsonPath& place);
void check_run(const tinykvm::FrameRun& run, const JsonPath& place, std::uint32_t frames);
void check_hot_run(const tinykvm::FrameRun& run, const JsonPath& place,
                   std::uint32_t frames); // an empty run is allowed
void check_large_page_count(std::size_t count);
void check_listener(const tinykvm::ListenerState& listener, const JsonPath& place);
void check_limits(const tinykvm::Limits& limits, const JsonPath& place);
// Checks the fields that are not lists: memory, page tables, limits.
void check_numbers(const tinykvm::MachineState& state);

} // namespace kvmserver
