// The ChaCha20 block function (RFC 8439, 2.3), for one block or several at once, also with fewer rounds. Freestanding,
// because the guest kernel uses it, too.
#pragma once
#include <cstdint>

namespace tinykvm {

// The state before the rounds: constants, 256 bits of key, a block counter of 64 bits, 64 bits of nonce.
struct ChaCha20State {
    std::uint32_t word[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
    std::uint32_t* key() { return word + 4; }
    void advance(std::uint32_t blocks) {
        const std::uint64_t counter = (word[12] | std::uint64_t{word[13]} << 32) + blocks;
        word[12] = static_cast<std::uint32_t>(counter);
        word[13] = static_cast<std::uint32_t>(counter >> 32);
    }
};

// Word is uint32_t, or a vector of uint32_t (GCC's vector extension) with one block per lane.
template <class Word>
[[gnu::always_inline]] constexpr inline void chacha_rounds(Word (&x)[16], int rounds) {
    // By reference: vectors wider than the target's registers have no calling convention.
    const auto mix = [](Word & v, const Word& with, int n) __attribute__((always_inline)) {
        v ^= with;
        v = (v << n) | (v >> (32 - n));
    };
    const auto quarter = [&](Word & a, Word & b, Word & c, Word & d) __attribute__((always_inline)) {
        a += b, mix(d, a, 16);
        c += d, mix(b, c, 12);
        a += b, mix(d, a, 8);
        c += d, mix(b, c, 7);
    };
    for (int done = 0; done < rounds; done += 2) {
        quarter(x[0], x[4], x[8], x[12]);
        quarter(x[1], x[5], x[9], x[13]);
        quarter(x[2], x[6], x[10], x[14]);
        quarter(x[3], x[7], x[11], x[15]);
        quarter(x[0], x[5], x[10], x[15]);
        quarter(x[1], x[6], x[11], x[12]);
        quarter(x[2], x[7], x[8], x[13]);
        quarter(x[3], x[4], x[9], x[14]);
    }
}

// Computes one block of 16 words and increments the counter.
inline void chacha20_block(ChaCha20State& state, std::uint32_t (&out)[16]) {
    for (int i = 0; i < 16; ++i)
        out[i] = state.word[i];
    chacha_rounds(out, 20);
    for (int i = 0; i < 16; ++i)
        out[i] += state.word[i];
    state.advance(1);
}

} // namespace tinykvm
