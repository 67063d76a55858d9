// PHP 8.2 and newer: mt_rand, rand, shuffle, array_rand, str_shuffle and lcg_value. random_int and random_bytes ask the
// system.
//
// ext/random exports its globals: { status *combined_lcg; bool combined_lcg_seeded; status *mt19937; bool
// mt19937_seeded; } in builds without threads. A status points to its state, or is the state (8.4).
#include <array>

#include "src/unique/exported.hpp"
#include "src/unique/finder.hpp"
#include "src/unique/mt19937.hpp"

namespace kvmserver::unique {

using tinykvm::GuestVirt;

namespace {

struct Globals {
    std::uint64_t lcg;
    std::uint64_t lcg_seeded;
    std::uint64_t mt;
    std::uint8_t mt_seeded;
};
constexpr std::uint64_t kStatusState = 8, kMaxGlobals = 64;

// Keeps mt_srand(42). PHP's own seeds have 32 bits, and one program in 65,536 gets one as small: its values repeat.
bool seeded_on_purpose(const MtState& state) {
    constexpr std::uint32_t kSmall = 1 << 16;
    const auto seed = number_seed_of(state);
    return seed && *seed < kSmall;
}

void add_mt(const MemoryView& memory, std::uint64_t status, Findings& findings) {
    // Clearing the `seeded` flag would be one byte instead of 2,496, but PHP's own seeds have only 32 bits and repeat
    // by accident.
    const auto pointed = memory.value<std::uint64_t>(GuestVirt(status) + kStatusState);
    for (const std::uint64_t at : {status, pointed.value_or(0)})
        if (const auto state = read_mt(memory, GuestVirt(at)); state && !seeded_on_purpose(*state))
            findings.add_random(GuestVirt(at), sizeof(*state), "PHP mt_rand");
}

void add_lcg(const MemoryView& memory, std::uint64_t status, Findings& findings) {
    // Two positive numbers, updated by multiplication. A negative one becomes positive by the first step.
    using Pair = std::array<std::int32_t, 2>;
    const auto valid = [&](std::uint64_t at) {
        const auto pair = memory.value<Pair>(GuestVirt(at));
        return pair && (*pair)[0] > 0 && (*pair)[1] > 0 && (*pair)[0] < 2147483563 && (*pair)[1] < 2147483399;
    };
    const auto pointed = memory.value<std::uint64_t>(GuestVirt(status) + kStatusState);
    if (pointed && valid(*pointed))
        findings.add_random(GuestVirt(*pointed), sizeof(Pair), "PHP lcg_value");
    else if (valid(status))
        findings.add_random(GuestVirt(status), sizeof(Pair), "PHP lcg_value");
}

} // namespace

void find_php(const MemoryView& memory, Findings& findings) {
    for (const char* file : {"php", "libphp", "apache2"}) {
        const Area* area = memory.file_named(file);
        const auto symbol = area ? exported(memory, *area, "random_globals") : std::nullopt;
        const auto globals = symbol && symbol->bytes <= kMaxGlobals ? memory.value<Globals>(symbol->at) : std::nullopt;
        if (!globals)
            continue;
        if (globals->mt_seeded == 1)
            add_mt(memory, globals->mt, findings);
        if ((globals->lcg_seeded & 0xff) == 1)
            add_lcg(memory, globals->lcg, findings);
    }
}

} // namespace kvmserver::unique
