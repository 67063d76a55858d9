#pragma once
#include <array>
#include <cstring>

#include "src/unique/finder.hpp"

namespace kvmserver::unique {

// A variable's memory, as of a program's .data, at 0x10000 and memory from the system at 0xc000000000. `name`: of the
// program.
struct World {
    static constexpr std::uint64_t kData = 0x10000, kHeap = 0xc000000000;
    alignas(4096) std::array<std::byte, 16384> data{}, heap{};
    MemoryView view;
    explicit World(const char* name) {
        const tinykvm::GuestVirt low(kData), high(kHeap);
        view = MemoryView({{low, low + data.size(), 3, name, data}, {high, high + heap.size(), 3, "", heap}},
                          {{low, data}, {high, heap}});
    }
    std::byte* host(std::uint64_t at) { return at >= kHeap ? heap.data() + (at - kHeap) : data.data() + (at - kData); }
    template <class T>
    void put(std::uint64_t at, const T& value) {
        std::memcpy(host(at), &value, sizeof(value));
    }
    std::vector<tinykvm::EntropyRegion> found() const { return find_entropy(view).regions; }
};

} // namespace kvmserver::unique
