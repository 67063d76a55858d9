#include <array>
#include <cstring>
#include <set>
#include <vector>

#include "tests/catch.hpp"
#include "tinykvm/base/random_stream.hpp"

namespace tinykvm {

struct RandomStreamTest {
    static RandomStream of(const ChaCha20State& state) { return RandomStream(state); }
};

namespace {

ChaCha20State known() {
    ChaCha20State state;
    for (std::uint32_t i = 0; i < 8; ++i)
        state.key()[i] = 0x03020100 + 0x04040404 * i;
    return state;
}

TEST_CASE("a block is that of RFC 8439, 2.3.2") {
    ChaCha20State state = known();
    state.word[12] = 1; // there a counter of 32 bits and 96 of nonce
    state.word[13] = 0x09000000;
    state.word[14] = 0x4a000000;
    std::uint32_t out[16];
    chacha20_block(state, out);
    const std::uint32_t expected[16] = {0xe4e7f110, 0x15593bd1, 0x1fdd0f50, 0xc47120a3, 0xc7f4d1c7, 0x0368c033,
                                        0x9aaa2204, 0x4e6cd4c3, 0x466482d2, 0x09aa9f07, 0x05d7c214, 0xa2028bd9,
                                        0xd19c12b5, 0xb94e16de, 0xe883d0cb, 0x4e3c50a2};
    CHECK(std::memcmp(out, expected, sizeof(out)) == 0);
    CHECK(state.word[12] == 2);
    state.word[12] = 0xffffffff;
    state.advance(2);
    CHECK(state.word[12] == 1);
    CHECK(state.word[13] == 0x09000001); // the counter is of 64 bits
}

// All words of the first blocks, in any order.
std::multiset<std::uint32_t> words_of_blocks(unsigned blocks) {
    ChaCha20State state = known();
    std::multiset<std::uint32_t> words;
    for (unsigned i = 0; i < blocks; ++i) {
        std::uint32_t out[16];
        chacha20_block(state, out);
        words.insert(std::begin(out), std::end(out));
    }
    return words;
}

TEST_CASE("a stream gives the words of consecutive blocks, each once") {
    RandomStream stream = RandomStreamTest::of(known());
    std::vector<std::uint32_t> words(16 * 33);
    stream.fill(std::as_writable_bytes(std::span(words).first(16 * 16)));
    stream.fill(std::as_writable_bytes(std::span(words).subspan(16 * 16, 16)));
    stream.fill(std::as_writable_bytes(std::span(words).subspan(16 * 17)));
    CHECK(std::multiset<std::uint32_t>(words.begin(), words.end()) == words_of_blocks(33));
}

TEST_CASE("any number of bytes is filled, and not one more") {
    RandomStream stream;
    std::set<std::array<std::byte, 16>> seen;
    for (std::size_t bytes = 0; bytes < 600; ++bytes) {
        std::vector<std::byte> room(bytes + 1, std::byte{0x5a});
        stream.fill(std::span(room).first(bytes));
        CHECK(room.back() == std::byte{0x5a});
        for (std::size_t at = 0; at + 16 <= bytes; at += 16) {
            std::array<std::byte, 16> part;
            std::copy_n(room.begin() + static_cast<std::ptrdiff_t>(at), 16, part.begin());
            REQUIRE(seen.insert(part).second);
        }
    }
}

} // namespace
} // namespace tinykvm
