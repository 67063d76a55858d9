// Random bytes in quantity: ChaCha20 with a key from getrandom(2). A system call for every few bytes would be most of
// the cost of preparing an invocation.
#pragma once
#include <cstddef>
#include <span>

#include "tinykvm/base/chacha20.hpp"

namespace tinykvm {

class RandomStream {
public:
    RandomStream();  // takes a fresh key; throws HostError
    ~RandomStream(); // wipes the key
    RandomStream(const RandomStream&) = delete;
    RandomStream& operator=(const RandomStream&) = delete;
    // Never uses a byte of the key stream twice, for up to 2^70 bytes.
    void fill(std::span<std::byte> out);

private:
    friend struct RandomStreamTest;
    explicit RandomStream(const ChaCha20State& state) : state_(state) {}
    ChaCha20State state_;
};

} // namespace tinykvm
