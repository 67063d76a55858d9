// The Mersenne Twister as runtimes keep it, and what it was seeded with.
#pragma once
#include <array>
#include <cstdint>
#include <optional>

#include "src/unique/memory_view.hpp"

namespace kvmserver::unique {

using MtState = std::array<std::uint32_t, 624>;

// A state that a generator is in: of its 624 words the first one's lower bits follow from the others, except right
// after seeding.
std::optional<MtState> read_mt(const MemoryView& memory, tinykvm::GuestVirt at);

enum class MtSeed {
    chosen,  // by a number or a short key: what a program does that wants the same values every time
    unknown, // none that could be found: seeded by the system, or drawn from for very long
};

// Draws backwards until the state looks as seeding leaves it, for as many as 2.5 million values.
MtSeed seed_of(MtState state);

// The 32-bit number that one of the earlier states was seeded with by init_genrand, looking back as far.
std::optional<std::uint32_t> number_seed_of(MtState state);

} // namespace kvmserver::unique
