// Random bytes in quantity: ChaCha20 under a key from getrandom(2). A system call for each few bytes would be what an
// invocation spends most of its preparation on.
#pragma once
#include <cstddef>
#include <span>

#include "tinykvm/base/chacha20.hpp"

namespace tinykvm {

class RandomStream {
public:
    RandomStream();  // a key of its own; throws HostError
    ~RandomStream(); // wipes the key
    RandomStream(const RandomStream&) = delete;
    RandomStream& operator=(const RandomStream&) = delete;
    // No byte is given out twice. Good for 2^70 bytes.
    void fill(std::span<std::byte> out);

private:
    friend struct RandomStreamTest;
    explicit RandomStream(const ChaCha20State& state) : state_(state) {}
    ChaCha20State state_;
};

} // namespace tinykvm
