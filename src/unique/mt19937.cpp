// M. Matsumoto, T. Nishimura: Mersenne Twister (1998), and their mt19937ar.c (2002) for the seeding.
#include "src/unique/mt19937.hpp"

#include <bit>

namespace kvmserver::unique {
namespace {

constexpr std::uint32_t kWords = 624, kShift = 397;
constexpr std::uint32_t kMatrix = 0x9908b0df, kUpper = 0x80000000;
constexpr std::uint32_t kFactor = 1812433253;
constexpr int kBlocksBack = 4096;

// The mixing step of the seeding recurrences.
constexpr std::uint32_t mixed(std::uint32_t a, std::uint32_t factor) { return (a ^ (a >> 30)) * factor; }

constexpr std::uint32_t inverse(std::uint32_t odd) {
    std::uint32_t x = odd; // Newton's method: each step doubles the number of correct bits
    for (int i = 0; i < 5; ++i)
        x *= 2 - odd * x;
    return x;
}

// Recovers the input of word i of the state: the upper bit of the previous word i and the other bits of the previous
// word i + 1.
inline std::uint32_t untwisted(std::uint32_t word, std::uint32_t other) {
    const std::uint32_t y = word ^ other, odd = y >> 31;
    return (y ^ (-odd & kMatrix)) << 1 | odd;
}

// Restores the state before the last 624 values were generated.
void go_back(MtState& mt) {
    constexpr std::uint32_t kRest = kWords - kShift;
    MtState from;
    for (std::uint32_t i = kRest; i < kWords; ++i)
        from[i] = untwisted(mt[i], mt[i - kRest]);
    for (std::uint32_t i = kRest + 1; i < kWords; ++i)
        mt[i] = (from[i] & kUpper) | (from[i - 1] & ~kUpper);
    for (std::uint32_t i = 1; i < kRest; ++i) // these were made from words that have just been restored
        from[i] = untwisted(mt[i], mt[i + kShift]);
    from[0] = untwisted(mt[0], mt[kShift]);
    for (std::uint32_t i = 1; i <= kRest; ++i)
        mt[i] = (from[i] & kUpper) | (from[i - 1] & ~kUpper);
    // The other bits of the first word went into the last one one block earlier. After seeding they are never used.
    mt[0] = (from[0] & kUpper) | (untwisted(mt[kWords - 1], mt[kShift - 1]) & ~kUpper);
}

bool numbered(const MtState& mt) {
    for (std::uint32_t i = 2; i < kWords; ++i)
        if (mt[i] != mixed(mt[i - 1], kFactor) + i)
            return false;
    return true;
}

const MtState& state_before_keys() {
    static const MtState state = [] {
        MtState mt{19650218};
        for (std::uint32_t i = 1; i < kWords; ++i)
            mt[i] = mixed(mt[i - 1], kFactor) + i;
        return mt;
    }();
    return state;
}

// Whether the state comes from init_by_array with a key of at most kLongestKey words. The words of such a key repeat; a
// key from the system has all 624 words.
bool keyed(const MtState& mt) {
    constexpr std::uint32_t kLongestKey = 128;
    const MtState& before = state_before_keys();
    constexpr std::uint32_t f1 = 1664525, f2 = 1566083941;
    const std::uint32_t first = (mt[1] + 1) ^ mixed(mt[kWords - 1], f2);
    std::uint32_t last = (mt[2] + 2) ^ mixed(first, f2); // word i - 1 after the first of init_by_array's two loops
    std::array<std::uint32_t, kWords> key{};             // key[i % length] + i % length, for i >= 3
    std::uint32_t known = 3;
    const auto more = [&](std::uint32_t end) {
        for (; known < end; ++known) {
            const std::uint32_t word = (mt[known] + known) ^ mixed(mt[known - 1], f2);
            key[known] = word - (before[known] ^ mixed(last, f1));
            last = word;
        }
    };
    more(3 + 1 + kLongestKey);
    for (std::uint32_t length = 1; length <= kLongestKey; ++length) {
        if (key[3] != key[3 + length])
            continue;
        more(kWords);
        bool repeats = true;
        for (std::uint32_t i = 3; i + length < kWords && repeats; ++i)
            repeats = key[i] == key[i + length];
        if (repeats)
            return true;
    }
    return false;
}

bool is_mt(const MtState& state) {
    constexpr std::uint32_t kSeeded = kUpper; // first word after init_by_array
    return state[0] == kSeeded || numbered(state) ||
           ((state[0] ^ untwisted(state[kWords - 1], state[kShift - 1])) & ~kUpper) == 0;
}

} // namespace

std::optional<MtState> read_mt(const MemoryView& memory, tinykvm::GuestVirt at) {
    const auto state = memory.value<MtState>(at);
    if (!state || !is_mt(*state))
        return std::nullopt;
    // Half of all bits must be set, within six standard deviations. This rules out pointers, text and small numbers.
    int bits = 0;
    for (const std::uint32_t word : *state)
        bits += std::popcount(word);
    constexpr int kHalf = 16 * kWords, kFar = 6 * 71;
    return bits > kHalf - kFar && bits < kHalf + kFar ? state : std::nullopt;
}

MtSeed seed_of(MtState state) {
    for (int i = 0; i < kBlocksBack; ++i) {
        if (numbered(state) || keyed(state))
            return MtSeed::chosen;
        go_back(state);
    }
    return MtSeed::unknown;
}

std::optional<std::uint32_t> number_seed_of(MtState state) {
    for (int i = 0; i < kBlocksBack; ++i) {
        if (numbered(state)) {
            const std::uint32_t x = (state[1] - 1) * inverse(kFactor);
            return x ^ (x >> 30);
        }
        go_back(state);
    }
    return std::nullopt;
}

} // namespace kvmserver::unique
