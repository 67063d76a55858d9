// V8's Math.random. Each native context has three neighbouring slots: MATH_RANDOM_INDEX (number of cached values left),
// MATH_RANDOM_STATE (128 bits of xorshift128+) and MATH_RANDOM_CACHE (64 doubles, drawn from last to first; V8 15 has
// no cache, and the index stays 0). See src/numbers/math-random.cc in V8.
#include <array>
#include <bit>

#include "src/unique/finder.hpp"
#include "src/unique/v8_heap.hpp"
#include "src/unique/v8_isolate.hpp"
#include "src/unique/v8_pools.hpp"
#include "src/unique/xorshift128.hpp"

namespace kvmserver::unique {

using tinykvm::GuestVirt;

namespace {

constexpr int kCached = 64;

// Whether V8 converts the state to this double: from the upper 52 bits of s0 up to V8 11, the upper 53 bits in 12 and
// 13, and the upper 53 bits of s0 + s1 since.
bool drawn_from(double value, const Xorshift128& state) {
    return value == static_cast<double>(state.s0 >> 11) * 0x1.0p-53 ||
           value == static_cast<double>((state.s0 + state.s1) >> 11) * 0x1.0p-53 ||
           value == std::bit_cast<double>((state.s0 >> 12) | 0x3ff0000000000000) - 1;
}

using Cache = std::array<double, kCached>;

// Whether the cached values are those drawn just before the state.
bool cache_of(Xorshift128 state, const Cache& cache) {
    for (int i = kCached - 1; i >= 0; --i) {
        if (!drawn_from(cache[i], state))
            return false;
        state.back();
    }
    return true;
}

template <class Word>
class MathRandom {
    using Heap = v8::Heap<Word>;

public:
    MathRandom(const MemoryView& memory, Findings& findings, bool seeded)
        : heap_{memory}, findings_(&findings), seeded_(seeded) {}

    // Adds all generators found. Returns whether there is a native context at all.
    bool find() {
        for (const Written& run : heap_.memory.written()) {
            const std::span words(reinterpret_cast<const Word*>(run.bytes.data()), run.bytes.size() / sizeof(Word));
            for (std::size_t i = 0; i + 4 < words.size(); ++i) {
                // Map, length, scope info, no previous context, ...
                if (words[i + 3] != 0 || !Heap::is_smi(words[i + 1]) || !Heap::is_pointer(words[i]) ||
                    !Heap::is_pointer(words[i + 2]))
                    continue;
                if (const std::int32_t slots = Heap::smi(words[i + 1]); slots >= kFewestSlots && slots <= kMaxSlots)
                    look(run.begin + i * sizeof(Word), slots);
            }
        }
        return there_;
    }

private:
    // Slots of a native context: 280 in V8 11, 309 in V8 15.
    static constexpr std::int32_t kFewestSlots = 150, kMaxSlots = 800;

    // The map of a native context refers back to that context as its creator. Nothing else does.
    bool native_context(GuestVirt at) const {
        const auto map = heap_.follow(at);
        return map && heap_.has_map(at) && heap_.follow(*map, Heap::kCompressed ? 5 : 4) == at;
    }

    void look(GuestVirt context, std::int32_t slots) {
        if (!native_context(context))
            return;
        there_ = true;
        if (seeded_)
            return;
        for (std::int32_t i = 2; i + 2 < slots; ++i) {
            const auto left = heap_.small(context, 2 + i);
            const auto state = left && *left >= 0 && *left <= kCached ? heap_.follow(context, 3 + i) : std::nullopt;
            if (state && heap_.has_length(*state, sizeof(Xorshift128)) && heap_.has_map(*state) &&
                take(context, i, *left, *state + 2 * Heap::kSlot))
                return;
        }
    }

    bool take(GuestVirt context, std::int32_t i, std::int32_t left, GuestVirt state_at) {
        const auto state = heap_.memory.template value<Xorshift128>(state_at);
        const auto cache_at = heap_.follow(context, 4 + i);
        if (!state || !cache_at)
            return false;
        const bool cached = heap_.has_length(*cache_at, kCached);
        const auto cache = cached ? heap_.memory.template value<Cache>(*cache_at + 2 * Heap::kSlot) : std::nullopt;
        // An all-zero state has not been drawn from. It would be seeded from the isolate's generator, which repeats as
        // well.
        const bool unused = *state == Xorshift128{};
        // An array of two objects must not be taken for a state, which matters where no cache can verify it.
        if (heap_.follow(state_at) && heap_.has_map(*heap_.follow(state_at)))
            return false;
        if (left == 0 ? !unused && (state->s0 == 0 || state->s1 == 0) : !cache || !cache_of(*state, *cache))
            return false;
        const GuestVirt index_at = context + static_cast<std::uint64_t>(2 + i) * Heap::kSlot;
        const Word none_left = Heap::to_smi(0);
        if (!findings_->add_random(state_at, sizeof(Xorshift128), "V8 Math.random"))
            return false;
        return !cached || findings_->add_constant(index_at, std::as_bytes(std::span(&none_left, 1)),
                                                  "V8 Math.random, numbers left");
    }

    Heap heap_;
    Findings* findings_;
    bool seeded_, there_ = false;
};

// Whether the program was started with a fixed seed (--random-seed=1). Its arguments and NODE_OPTIONS are on the stack.
bool seeded_on_purpose(const MemoryView& memory) {
    for (const Area& area : memory.areas()) {
        if (area.name != "[stack]")
            continue;
        const std::string_view text(reinterpret_cast<const char*>(area.bytes.data()), area.bytes.size());
        const std::string_view tail = text.substr(text.size() - std::min<std::size_t>(text.size(), 256 << 10));
        if (tail.find("--random-seed") != tail.npos || tail.find("--random_seed") != tail.npos)
            return true;
    }
    return false;
}

} // namespace

void find_v8(const MemoryView& memory, Findings& findings) {
    const bool seeded = seeded_on_purpose(memory);
    if (MathRandom<std::uint64_t>(memory, findings, seeded).find())
        v8::find_pools<std::uint64_t>(memory, findings);
    else if (MathRandom<std::uint32_t>(memory, findings, seeded).find()) // with pointer compression
        v8::find_pools<std::uint32_t>(memory, findings);
    else
        return;
    if (!seeded)
        v8::find_isolates(memory, findings);
}

} // namespace kvmserver::unique
