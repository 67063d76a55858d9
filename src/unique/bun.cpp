// Bun. JavaScriptCore's Math.random is WTF's WeakRandom, one for each global object. It consists of its seed (32 bits)
// and the current state of xorshift128+. A match is verified by stepping from the seed to the state. See
// Source/WTF/wtf/WeakRandom.h in WebKit.
#include <algorithm>
#include <array>
#include <utility>

#include "src/unique/finder.hpp"
#include "src/unique/random_bytes.hpp"
#include "src/unique/xorshift128.hpp"

namespace kvmserver::unique {

using tinykvm::GuestVirt;

namespace {

constexpr std::uint64_t kMaxDraws = 1 << 14; // steps tried for a likely generator
constexpr std::uint64_t kFirstDraws = 64;    // steps tried first at each candidate
constexpr std::uint64_t kSparseDraws = 4;    // after more steps, few words of the state have many zero bits
// generators followed beyond kFirstDraws, in programs with JavaScriptCore
constexpr std::size_t kMaxFollowed = 20000;
constexpr std::uint32_t kMinSeed = 1 << 16; // smaller seeds were chosen by a person (setRandomSeed() of bun:jsc)

// Whether the seed leads to the state within `draws` steps.
bool leads_to(std::uint32_t seed, const Xorshift128& state, std::uint64_t draws) {
    Xorshift128 from{seed, seed};
    from.step(); // setSeed() draws once
    for (std::uint64_t i = 0; i <= draws; ++i, from.step())
        if (from == state)
            return true;
    return false;
}

bool full(std::uint64_t word) {
    return word >> 48 != 0 && word >> 48 != 0xfffe && word >> 48 != 0xffff && word << 32 != 0;
}

// Bun's pool for crypto.randomUUID(), getRandomValues() and randomInt(): 2048 random bytes, followed by the number of
// used bytes. It is a heap block of its own, so that some pointer leads to its beginning.
constexpr std::size_t kPool = 2048;

bool anything_leads_to(const MemoryView& memory, GuestVirt at) {
    return std::any_of(memory.written().begin(), memory.written().end(), [&](const Written& run) {
        const auto words = run.words();
        return std::find(words.begin(), words.end(), at.value) != words.end();
    });
}

void find_bun_pool(const MemoryView& memory, Findings& findings) {
    constexpr int kMaxLookedAt = 64; // candidates; each costs a search of all memory
    int found = 0;
    for (const Written& run : memory.written()) {
        const auto words = run.words();
        for (std::size_t i = kPool / 8; i + 8 < words.size(); ++i) {
            if (words[i] == 0 || words[i] > kPool || words[i + 1] != 0 || words[i + 2] != 0 || words[i - 1] >> 32 == 0)
                continue;
            const GuestVirt pool = run.begin + (i * 8 - kPool);
            if (pool.value % 64 != 0 || !may_be_random_bytes(run.bytes.subspan(i * 8 - kPool, kPool)) ||
                ++found > kMaxLookedAt || !anything_leads_to(memory, pool) ||
                anything_leads_to(memory, pool + kPool)) // the next block, not the pool's counter
                continue;
            const std::uint64_t used_up = kPool;
            findings.add_constant(pool + kPool, std::as_bytes(std::span(&used_up, 1)),
                                  "Bun crypto.randomUUID and getRandomValues");
        }
    }
}

// WTF's ARC4, which seeds Math.random of global objects created later: i, j, a permutation of 256 bytes, and the number
// of bytes left until it takes a new key from the system. See Source/WTF/wtf/CryptographicallyRandomNumber.cpp.
void find_arc4(const MemoryView& memory, Findings& findings) {
    constexpr std::size_t kState = 256, kPadding = 3;
    constexpr std::uint32_t kMaxLeft = 1'600'000, kNothingLeft = 0;
    const auto permutation = [](std::span<const std::byte> bytes) {
        std::array<bool, kState> seen{};
        return std::all_of(bytes.begin(), bytes.end(), [&](std::byte value) {
            return !std::exchange(seen[static_cast<std::size_t>(value)], true);
        });
    };
    std::uint64_t looked = 0;
    for (const Written& run : memory.written()) {
        for (std::size_t at = kState + kPadding + 1; at + sizeof(kNothingLeft) <= run.bytes.size();
             at += sizeof(kNothingLeft)) {
            std::uint32_t left;
            std::memcpy(&left, run.bytes.data() + at, sizeof(left));
            if (left == 0 || left > kMaxLeft)
                continue;
            if (++looked % 4096 == 0)
                memory.check_time();
            for (std::size_t padding = 0; padding <= kPadding; ++padding) {
                const auto state = run.bytes.subspan(at - padding - kState, kState);
                if (permutation(state) && may_be_random_bytes(state))
                    findings.add_constant(run.begin + at, std::as_bytes(std::span(&kNothingLeft, 1)),
                                          "JavaScriptCore, seeds of Math.random");
            }
        }
    }
}

// Calls fn(address, its three words) for each possible generator. `padded`: those whose seed is followed by zeros;
// otherwise those where it is followed by something else.
template <class Fn>
void for_likely(const MemoryView& memory, bool padded, Fn fn) {
    for (const Written& run : memory.written()) {
        const auto words = run.words();
        for (std::size_t i = 0; i + 2 < words.size(); ++i) {
            if ((words[i] >> 32 == 0) != padded || (words[i] & 0xffffffff) < kMinSeed || words[i + 1] >> 16 == 0 ||
                words[i + 2] >> 16 == 0)
                continue;
            const GuestVirt at = run.begin + i * sizeof(std::uint64_t);
            // Generators seeded with their own address belong to the garbage collector.
            if ((words[i] ^ at.value) << 32 >> 44 != 0)
                fn(at, words.data() + i);
        }
    }
}

} // namespace

void find_bun(const MemoryView& memory, Findings& findings) {
    std::vector<GuestVirt> likely;
    bool any = false; // found a rarely used generator: the program has JavaScriptCore
    const auto add = [&](GuestVirt at) {
        any = true;
        findings.add_random(at + sizeof(std::uint64_t), sizeof(Xorshift128), "JavaScriptCore Math.random");
    };
    // The seed is followed by padding, which is mostly but not always zero. Only programs that have a generator with
    // zeros are worth searching for the others.
    for (const bool padded : {true, false}) {
        for_likely(memory, padded, [&](GuestVirt at, const std::uint64_t* words) {
            const bool all_bits = full(words[1]) && full(words[2]); // the first steps from a seed leave zeros
            if (leads_to(static_cast<std::uint32_t>(words[0]), {words[1], words[2]},
                         all_bits ? kFirstDraws : kSparseDraws))
                add(at);
            else if (padded && all_bits && likely.size() < kMaxFollowed)
                likely.push_back(at);
        });
        if (!any)
            return;
    }
    for (const GuestVirt at : likely)
        if (const auto seed = memory.value<std::uint32_t>(at))
            if (const auto state = memory.value<Xorshift128>(at + sizeof(std::uint64_t));
                state && leads_to(*seed, *state, kMaxDraws))
                add(at);
    find_arc4(memory, findings);
    find_bun_pool(memory, findings);
}

} // namespace kvmserver::unique
