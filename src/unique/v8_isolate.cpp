// The generator of a V8 isolate. It seeds Math.random of every context created later, and gives hashes to objects. It
// consists of a seed, from the embedder or the system, and the current state of xorshift128+. Each isolate has one, in
// a malloc() block of its own with a pointer to it. See src/base/utils/random-number-generator.cc in V8.
#include "src/unique/v8_isolate.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <span>
#include <unordered_set>
#include <utility>

#include "src/unique/xorshift128_walk.hpp"
#include "tinykvm/base/parallel.hpp"

namespace kvmserver::unique {

using tinykvm::GuestVirt;

namespace {

constexpr std::size_t kMaxLikely = 256; // candidates to verify; 0.1 ms each
constexpr std::size_t kMaxLooks = 1 << 20;

struct Generator {
    std::uint64_t seed;
    Xorshift128 state;
};

std::uint64_t murmur3(std::uint64_t h) {
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccd;
    h ^= h >> 33;
    h *= 0xc4ceb9fe1a85ec53;
    return h ^ h >> 33;
}

Xorshift128 seeded_with(std::uint64_t seed) {
    const std::uint64_t s0 = murmur3(seed);
    return {s0, murmur3(~s0)};
}

// Rules out addresses, small numbers and text. Random words fail with a probability of 1 in 10,000; the isolate's
// generator is then missed.
bool may_be_generator_state(std::span<const std::uint64_t, 3> words) {
    constexpr std::uint64_t kNotAscii = 0x8080808080808080;
    int not_ascii = 0;
    for (const std::uint64_t word : words) {
        if (word >> 48 == 0 || word >> 48 == 0xffff || (word & 0xffffffff) == 0)
            return false;
        not_ascii += std::popcount(word & kNotAscii);
    }
    return not_ascii >= 3;
}

std::unordered_set<std::uint64_t> likely_places(const MemoryView& memory) {
    std::unordered_set<std::uint64_t> places;
    for (const Written& run : memory.written()) {
        const auto words = run.words();
        // Every second word, because malloc() returns multiples of 16.
        for (std::size_t i = 0; i + 2 < words.size() && places.size() < kMaxLooks; i += 2)
            if (may_be_generator_state(words.subspan(i).first<3>()))
                places.insert(run.begin.value + i * sizeof(std::uint64_t));
    }
    return places;
}

struct Places {
    std::vector<GuestVirt> of_glibc; // blocks that glibc's malloc() made for 24 bytes
    std::vector<GuestVirt> others;
};

// The places to which a pointer leads.
Places led_to(const MemoryView& memory, std::unordered_set<std::uint64_t> places) {
    Places found;
    for (const Written& run : memory.written()) {
        for (const std::uint64_t word : run.words()) {
            if (word % 16 != 0 || word == 0 || word >> 47 != 0 || places.erase(word) == 0)
                continue;
            const auto size = memory.value<std::uint64_t>(GuestVirt(word - sizeof(word)));
            auto& kind = size && (*size & ~std::uint64_t{7}) == 0x20 ? found.of_glibc : found.others;
            if (kind.size() < kMaxLikely)
                kind.emplace_back(word);
        }
    }
    return found;
}

// Adds those that are generators. Returns whether there is one.
bool add_sound(const std::vector<GuestVirt>& places, const MemoryView& memory, Findings& findings) {
    const auto walk = std::make_unique<Xorshift128Walk>();
    std::vector<Generator> generators(places.size());
    for (std::size_t i = 0; i < places.size(); ++i)
        generators[i] = memory.value<Generator>(places[i]).value_or(Generator{});
    std::vector<std::uint8_t> sound(places.size());
    tinykvm::in_parallel(places.size(), [&](std::size_t i) {
        sound[i] = walk->leads_to(seeded_with(generators[i].seed), generators[i].state);
    });
    for (std::size_t i = 0; i < places.size(); ++i)
        if (sound[i])
            findings.add_random(places[i] + offsetof(Generator, state), sizeof(Xorshift128),
                                "V8, generator of an isolate");
    return std::ranges::count(sound, 0) != std::ssize(sound);
}

} // namespace

void v8::find_isolates(const MemoryView& memory, Findings& findings) {
    const Places places = led_to(memory, likely_places(memory));
    // A process has one malloc() for all of its isolates.
    if (!add_sound(places.of_glibc, memory, findings))
        add_sound(places.others, memory, findings);
}

} // namespace kvmserver::unique
