// Rust: ThreadRng of the crate rand 0.7 to 0.9, from which uuid, tempfile and most others draw; also in Deno and other
// programs written in Rust.
//
// It is a ChaCha generator with a block of results, reseeded after 64 KiB. It is found by that number, which follows
// key, counter and stream, and verified by recomputing the block of results. A generator that the program seeded has no
// such number, because it is never reseeded.
#include <algorithm>
#include <array>
#include <bit>

#include "src/unique/finder.hpp"
#include "tinykvm/base/chacha20.hpp"

namespace kvmserver::unique {

using tinykvm::GuestVirt;

namespace {

// rand_chacha: ChaChaXCore, followed by rand: ReseedingCore.
struct Core {
    std::array<std::uint32_t, 8> key;
    std::uint64_t counter, stream;
    std::uint64_t threshold;
    std::int64_t left; // bytes until it is reseeded; negative when a fork requested that
};
constexpr std::uint64_t kThreshold = 48;
static_assert(offsetof(Core, threshold) == kThreshold);

constexpr std::uint64_t kReseedAfter = 64 << 10;
constexpr std::size_t kResults = 64; // in words: four blocks
using Results = std::array<std::uint32_t, kResults>;

// Computes the four blocks before the counter.
Results results_of(const Core& core, int rounds) {
    using Lanes = std::uint32_t __attribute__((vector_size(16)));
    const auto all = [](std::uint32_t v) { return Lanes{v, v, v, v}; };
    Lanes first[16]{all(0x61707865), all(0x3320646e), all(0x79622d32), all(0x6b206574)};
    for (std::size_t i = 0; i < 8; ++i)
        first[4 + i] = all(core.key[i]);
    for (std::uint32_t block = 0; block < 4; ++block) {
        const std::uint64_t counter = core.counter - 4 + block;
        first[12][block] = static_cast<std::uint32_t>(counter);
        first[13][block] = static_cast<std::uint32_t>(counter >> 32);
    }
    first[14] = all(static_cast<std::uint32_t>(core.stream));
    first[15] = all(static_cast<std::uint32_t>(core.stream >> 32));
    Lanes x[16];
    std::copy(std::begin(first), std::end(first), std::begin(x));
    tinykvm::chacha_rounds(x, rounds);
    Results out;
    for (std::size_t i = 0; i < 16; ++i)
        for (std::size_t block = 0; block < 4; ++block)
            out[block * 16 + i] = x[i][block] + first[i][block];
    return out;
}

// Whether this may be a key from the system, not pointers, lengths or text. One key in a thousand has a short word and
// is missed.
bool random_key(const Core& core) {
    return std::ranges::all_of(core.key, [](std::uint32_t word) {
        return word >> 16 != 0 && (word & 0xffff) != 0 && std::popcount(word) >= 5 && std::popcount(word) <= 27;
    });
}

bool belongs(const Core& core, const Results& results, std::uint64_t used) {
    if (core.counter == 0) // not drawn from yet: no results to recompute, but all other fields are known
        return used == kResults && core.left == static_cast<std::int64_t>(kReseedAfter) && random_key(core) &&
               std::ranges::all_of(results, [](std::uint32_t word) { return word == 0; });
    constexpr std::array kRounds{12, 20}; // rand 0.8 and later; rand 0.7
    return std::ranges::any_of(kRounds, [&](int rounds) { return results == results_of(core, rounds); });
}

void add_core(const MemoryView& memory, GuestVirt at, Findings& findings) {
    const auto core = memory.value<Core>(at);
    if (!core || std::ranges::all_of(core->key, [](std::uint32_t word) { return word == 0; }))
        return;
    // The compiler reorders fields: either results, core, index, or results, index, core, where the core is aligned.
    struct Order {
        std::uint64_t results_before, index_behind;
    };
    constexpr std::uint64_t kBytes = sizeof(Results), kGap = 16;
    for (const auto& [before, index] : {Order{kBytes, sizeof(Core)}, Order{kBytes + kGap, std::uint64_t{0} - kGap}}) {
        const auto results = memory.value<Results>(GuestVirt(at.value - before));
        const auto used = memory.value<std::uint64_t>(at + index);
        if (!results || !used || *used > kResults || !belongs(*core, *results, *used))
            continue;
        constexpr std::array<std::uint64_t, 1> kUsedUp{kResults};
        findings.add_random(at, sizeof(core->key), "Rust ThreadRng");
        findings.add_constant(at + index, std::as_bytes(std::span(kUsedUp)), "Rust ThreadRng");
        return;
    }
}

} // namespace

void find_rust_rand(const MemoryView& memory, Findings& findings) {
    constexpr std::uint64_t kMaxBlocks = std::uint64_t{1} << 40;
    for (const Written& run : memory.written()) {
        const auto words = run.words();
        for (std::size_t i = kThreshold / 8; i + 1 < words.size(); ++i) {
            if (words[i] != kReseedAfter || words[i - 1] != 0)
                continue; // ThreadRng uses stream 0
            const auto left = static_cast<std::int64_t>(words[i + 1]);
            const std::uint64_t counter = words[i - 2];
            if (left <= static_cast<std::int64_t>(kReseedAfter) && left > -static_cast<std::int64_t>(kReseedAfter) &&
                counter % 4 == 0 && counter < kMaxBlocks)
                add_core(memory, GuestVirt(run.begin.value + i * 8 - kThreshold), findings);
        }
    }
}

} // namespace kvmserver::unique
