#include <algorithm>
#include <cstring>

#include "src/snapshot/address_order.hpp"
#include "src/snapshot/plan.hpp"
#include "tests/catch.hpp"
#include "tests/unit/snapshot/files.hpp"

using namespace kvmserver;
using test::Bytes;

namespace {

void set_entry(Bytes& memory, std::uint64_t table, std::size_t index, std::uint64_t entry) {
    std::memcpy(&memory[table * 4096 + index * 8], &entry, 8);
}
std::uint64_t entry_for(std::uint64_t frame) { return frame * 4096 | 7; }

// Frames sorted by rank.
std::vector<std::uint32_t> order_of(const Bytes& memory, std::uint64_t root) {
    const auto ranks = address_ranks(memory, root);
    std::vector<std::uint32_t> order(ranks.size(), ~0u);
    for (std::uint32_t frame = 0; frame < ranks.size(); ++frame)
        order.at(ranks[frame]) = frame;
    CHECK(std::find(order.begin(), order.end(), ~0u) == order.end()); // all ranks are different
    return order;
}

} // namespace

TEST_CASE("frames are ranked by the address that maps them, what may be written to last") {
    Bytes memory(12 * 4096);
    set_entry(memory, 1, 5, entry_for(2)); // level 4 to 1 in frames 1, 2, 3, 4 and 6
    set_entry(memory, 2, 0, entry_for(3));
    set_entry(memory, 3, 1, entry_for(6));
    set_entry(memory, 3, 0, entry_for(4));
    set_entry(memory, 4, 9, entry_for(11));
    set_entry(memory, 4, 10, entry_for(8) & ~7ull); // PROT_NONE
    set_entry(memory, 6, 0, entry_for(7) | 1ull << 63);
    set_entry(memory, 6, 3, entry_for(0) & ~2ull); // read-only
    CHECK(order_of(memory, 4096) == std::vector<std::uint32_t>{1, 2, 3, 4, 6, 8, 0, 11, 7, 5, 9, 10});

    const auto plan = plan_chunks(memory, address_ranks(memory, 4096), std::vector<std::uint32_t>{7, 11});
    CHECK(plan.zero_pages == 7);
}

TEST_CASE("page tables of any content") {
    Bytes memory(8 * 4096);
    for (const std::uint64_t root : {0ull, 8ull * 4096, ~0ull, 7ull * 4096 + 123})
        CHECK(order_of(memory, root).size() == 8);
    for (std::uint64_t table = 0; table < 8; ++table) // each names all frames, itself, and frames beyond memory
        for (std::size_t i = 0; i < 512; ++i)
            set_entry(memory, table, i, entry_for((i * 5 + table) % 11) | i << 52);
    CHECK(order_of(memory, 0).size() == 8);
    std::fill(memory.begin(), memory.end(), std::byte{0xff});
    CHECK(order_of(memory, 4096).size() == 8);
}
