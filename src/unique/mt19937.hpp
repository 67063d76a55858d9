// The Mersenne Twister's state as runtimes store it, and how it was seeded.
#pragma once
#include <array>
#include <cstdint>
#include <optional>

#include "src/unique/memory_view.hpp"

namespace kvmserver::unique {

using MtState = std::array<std::uint32_t, 624>;

// Reads a state if it is a valid one: the lower bits of the first of its 624 words follow from the others, except right
// after seeding.
std::optional<MtState> read_mt(const MemoryView& memory, tinykvm::GuestVirt at);

enum class MtSeed {
    chosen,  // by a number or a short key, as by a program that wants the same values every time
    unknown, // no such seed found: seeded by the system, or drawn from for very long
};

// Steps back until the state looks as after seeding, by up to 2.5 million values.
MtSeed seed_of(MtState state);

// The 32-bit number with which init_genrand seeded the state, searching as far back.
std::optional<std::uint32_t> number_seed_of(MtState state);

} // namespace kvmserver::unique
