// Ruby 2.7 to 3.4: Kernel#rand, Random.rand and every Random.new that was given no seed.
//
// random.c: struct { VALUE seed; struct MT { uint32_t state[624]; uint32_t *next; int left; } }. `next` points into the
// state just in front of it, and `left` must agree with `next`: nothing else looks like this. A seed from the system
// has 128 bits; a program's own seed is a small number.
#include "src/unique/finder.hpp"
#include "src/unique/mt19937.hpp"

namespace kvmserver::unique {

using tinykvm::GuestVirt;

namespace {

constexpr std::uint64_t kStateBytes = sizeof(MtState), kSeedBytes = 8;

// Whether a VALUE is an Integer of more than 64 bits. include/ruby/internal/value_type.h, fl_type.h; internal/bignum.h.
bool is_long_integer(const MemoryView& memory, std::uint64_t value) {
    constexpr std::uint64_t kTypeMask = 0x1f, kBignum = 0x0a, kEmbedded = 1u << 14, kLengthShift = 15, kLengthMask = 7;
    constexpr std::uint64_t kLongest = 4; // words of 64 bits
    if (value % 8 != 0 || value == 0)
        return false; // an immediate value: a small integer, nil, false
    const auto flags = memory.value<std::uint64_t>(GuestVirt(value));
    if (!flags || (*flags & kTypeMask) != kBignum)
        return false;
    const auto length = (*flags & kEmbedded) ? std::optional(*flags >> kLengthShift & kLengthMask)
                                             : memory.value<std::uint64_t>(GuestVirt(value) + 16);
    return length && *length >= 2 && *length <= kLongest;
}

} // namespace

void find_ruby(const MemoryView& memory, Findings& findings) {
    if (!memory.file_named("libruby") && !memory.file_named("ruby"))
        return;
    for (const Written& run : memory.written()) {
        const auto words = run.words();
        for (std::size_t i = (kStateBytes + kSeedBytes) / 8; i + 1 < words.size(); ++i) {
            const std::uint64_t state = run.begin.value + i * 8 - kStateBytes;
            const std::uint64_t used = words[i] - state; // in bytes
            if (used > kStateBytes)
                continue;
            const auto left = static_cast<std::uint32_t>(words[i + 1]);
            if (used % 4 != 0 || left == 0 || used / 4 + left != std::tuple_size_v<MtState> + 1)
                continue;
            const std::uint64_t seed = words[i - kStateBytes / 8 - 1];
            if (is_long_integer(memory, seed) && read_mt(memory, GuestVirt(state)))
                findings.add_random(GuestVirt(state), kStateBytes, "Ruby Random");
        }
    }
}

} // namespace kvmserver::unique
