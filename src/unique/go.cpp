// Go 1.22 and newer: the ChaCha8 generator of each thread (math/rand, math/rand/v2, names of temporary files, hash
// seeds) and the one that seeds the generators of new threads.
//
// They are found by content: 32 words that are the block computed from the key and counter behind them. This needs no
// symbols (most Go programs are stripped) and no offsets, which change with each release. A generator that the program
// made itself (rand.NewChaCha8) looks the same but lies in no `m`.
#include <algorithm>
#include <array>

#include "src/unique/finder.hpp"
#include "tinykvm/base/chacha20.hpp"

namespace kvmserver::unique {

using tinykvm::GuestVirt;

namespace {

// internal/chacha8rand: State.
struct State {
    std::array<std::uint64_t, 32> block;
    std::array<std::uint64_t, 4> seed;
    std::uint32_t used, usable, counter;
    std::uint32_t padding;
};
constexpr std::uint64_t kSeed = 256, kUsed = 288, kBehind = 304;
static_assert(sizeof(State) == kBehind);

constexpr std::uint32_t kBlockWords = 32, kReseedWords = 4, kCounterStep = 4, kLastCounter = 12;

// internal/chacha8rand: block. Four interleaved blocks of 8 rounds; only the key is added at the end.
std::array<std::uint64_t, 32> block_of(const std::array<std::uint64_t, 4>& seed, std::uint32_t counter) {
    using Lanes = std::uint32_t __attribute__((vector_size(16)));
    const auto all = [](std::uint32_t v) { return Lanes{v, v, v, v}; };
    Lanes x[16]{all(0x61707865), all(0x3320646e), all(0x79622d32), all(0x6b206574)};
    std::array<Lanes, 8> key;
    for (std::size_t i = 0; i < 8; ++i)
        x[4 + i] = key[i] = all(static_cast<std::uint32_t>(seed[i / 2] >> 32 * (i % 2)));
    x[12] = all(counter) + Lanes{0, 1, 2, 3};
    tinykvm::chacha_rounds(x, 8);
    for (std::size_t i = 0; i < 8; ++i)
        x[4 + i] += key[i];
    std::array<std::uint64_t, 32> block;
    static_assert(sizeof(block) == sizeof(x));
    std::memcpy(block.data(), x, sizeof(block));
    return block;
}

bool is_generator(const State& state) {
    const bool counts = state.counter % kCounterStep == 0 && state.counter <= kLastCounter &&
                        state.used <= state.usable &&
                        (state.usable == kBlockWords || state.usable == kBlockWords - kReseedWords);
    return counts && state.block == block_of(state.seed, state.counter);
}

std::vector<GuestVirt> find_generators(const MemoryView& memory) {
    constexpr std::size_t kMax = 10'000; // threads
    std::vector<GuestVirt> found;
    for (const Written& run : memory.written()) {
        const auto words = run.words();
        for (std::size_t i = kUsed / 8; i + 1 < words.size() && found.size() < kMax; ++i) {
            // used | usable << 32, followed by the counter
            const std::uint64_t usable = words[i] >> 32;
            if ((usable != kBlockWords && usable != kBlockWords - kReseedWords) || (words[i] & 0xffffffff) > usable ||
                (words[i + 1] & 0xffffffff) > kLastCounter || words[i - 1] == 0)
                continue;
            const GuestVirt at(run.begin.value + i * 8 - kUsed);
            if (const auto state = memory.value<State>(at); state && is_generator(*state))
                found.push_back(at);
        }
    }
    return found;
}

// Offset of the generator at `at` within a runtime.m; 0 if it lies in none. An m begins with a pointer to its g0, which
// points back to its m.
std::uint64_t offset_in_m(const MemoryView& memory, GuestVirt at) {
    constexpr std::uint64_t kGoroutineM = 48; // g.m, after two words of stack, two guards, _panic and _defer
    constexpr std::uint64_t kMin = 256, kMax = 2048;
    for (std::uint64_t offset = kMin; offset <= kMax && offset < at.value; offset += 8) {
        const GuestVirt m(at.value - offset);
        const auto g0 = memory.value<std::uint64_t>(m);
        if (g0 && *g0 != 0 && memory.value<std::uint64_t>(GuestVirt(*g0) + kGoroutineM) == m.value)
            return offset;
    }
    return 0;
}

// runtime.globalRand: a lock, 32 zeroed bytes, the state, `init`. It is a variable outside Go's heap.
bool is_global(const MemoryView& memory, GuestVirt at) {
    constexpr std::uint64_t kCleared = 32;
    const auto before = memory.bytes(GuestVirt(at.value - kCleared), kCleared);
    const auto init = memory.value<std::uint8_t>(at + kBehind);
    return init == 1 && !before.empty() && std::ranges::all_of(before, [](std::byte b) { return b == std::byte{0}; });
}

// Whether the address lies in the data of a mapped file or in the zeros (bss) behind it.
bool is_variable(const MemoryView& memory, GuestVirt at) {
    const Area* area = memory.area_at(at);
    if (area && area->name.empty())
        area = memory.area_at(GuestVirt(area->begin.value - 1));
    return area && area->name.starts_with('/');
}

void add_generator(Findings& findings, GuestVirt at, const char* source) {
    // A fresh key, and a block marked as used up: the next draw computes a new block.
    constexpr std::array<std::uint32_t, 3> used_up{kBlockWords, kBlockWords, 0};
    findings.add_random(at + kSeed, kUsed - kSeed, source);
    findings.add_constant(at + kUsed, std::as_bytes(std::span(used_up)), source);
}

} // namespace

void find_go(const MemoryView& memory, Findings& findings) {
    const std::vector<GuestVirt> generators = find_generators(memory);
    // Every m has the generator at the same offset: take the most frequent one.
    std::vector<std::uint64_t> offsets;
    offsets.reserve(generators.size());
    for (const GuestVirt at : generators)
        offsets.push_back(offset_in_m(memory, at));
    std::uint64_t wanted = 0;
    std::ptrdiff_t most = 0;
    for (const std::uint64_t offset : offsets)
        if (const auto count = std::ranges::count(offsets, offset); offset != 0 && count > most)
            wanted = offset, most = count;
    for (std::size_t i = 0; i < generators.size(); ++i) {
        if (offsets[i] != 0 && offsets[i] == wanted) {
            add_generator(findings, generators[i], "Go thread's generator");
            findings.add_random(generators[i] + kBehind, 8, "Go thread's generator"); // m.cheaprand
        } else if (offsets[i] == 0 && is_variable(memory, generators[i]) && is_global(memory, generators[i])) {
            add_generator(findings, generators[i], "Go generator for new threads");
        }
    }
}

} // namespace kvmserver::unique
