#include <cstring>
#include <random>

#include "src/snapshot/filter.hpp"
#include "tests/catch.hpp"
#include "tests/unit/snapshot/files.hpp"

using namespace kvmserver;

static test::Bytes round_trip(Filter filter, const test::Bytes& raw) {
    test::Bytes filtered(raw.size()), back(raw.size());
    apply_filter(filter, raw, filtered.data());
    undo_filter(filter, filtered, back.data());
    return back;
}

TEST_CASE("filters can be undone") {
    std::mt19937 random(5);
    for (const Filter filter : kFilters)
        for (const std::size_t size : {4096u, 8192u, 3 * 4096u, 64 * 4096u}) {
            CAPTURE(name_of(filter), size);
            test::Bytes raw(size);
            for (std::byte& byte : raw)
                byte = static_cast<std::byte>(random());
            CHECK(round_trip(filter, raw) == raw);
            for (std::byte& byte : raw) // nothing but opcodes and small operands
                byte = static_cast<std::byte>(std::array{0xe8, 0xe9, 0x00, 0xff, 0x03, 0xfc}[random() % 6]);
            CHECK(round_trip(filter, raw) == raw);
        }
}

TEST_CASE("the x86 filter gives calls of one function one operand") {
    test::Bytes code(4096);
    const auto call = [&](std::size_t at, std::uint32_t target) {
        code[at] = std::byte{0xe8};
        const std::uint32_t operand = target - static_cast<std::uint32_t>(at + 5);
        std::memcpy(&code[at + 1], &operand, 4);
    };
    call(100, 3000);
    call(2000, 3000);
    call(4091, 3000); // ends with the page
    test::Bytes filtered(code.size());
    apply_filter(Filter::x86, code, filtered.data());
    CHECK(std::memcmp(&filtered[101], &filtered[2001], 4) == 0);
    CHECK(std::memcmp(&filtered[101], &filtered[4092], 4) == 0);
    CHECK(round_trip(Filter::x86, code) == code);
}

TEST_CASE("planes gather the bytes of a unit by place") {
    test::Bytes raw(16), filtered(16);
    for (std::size_t i = 0; i < 16; ++i)
        raw[i] = static_cast<std::byte>(i);
    apply_filter(Filter::planes4, raw, filtered.data());
    CHECK(filtered[0] == std::byte{0});
    CHECK(filtered[1] == std::byte{4});
    CHECK(filtered[4] == std::byte{1});
}
