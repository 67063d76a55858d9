// What goes into a function, and what comes out of it.
#include <array>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/e2e/library/cases.hpp"

using cases::error_of;
using cases::has;
using cases::image;
using tinykvm::Address;
using tinykvm::Kind;
using tinykvm::Machine;
using tinykvm::Out;

TEST_CASE("integers of all widths") {
    Machine machine(image());
    const auto six = image().function<long(long, long, long, long, long, long)>("six");
    CHECK(*machine.call(six, 1, 2, 3, 4, 5, 6) == 654321);
    CHECK(*machine.call(six, -1, 0, 0, 0, 0, -1) == -100001);
    const auto negate8 = image().function<std::int8_t(std::int8_t)>("negate8");
    CHECK(*machine.call(negate8, 100) == -100);
    CHECK(*machine.call(negate8, -128) == -128);
    CHECK(*machine.call(image().function<std::uint32_t(std::uint32_t)>("negate32"), 1u) == 0xffffffffu);
    const auto negate64 = image().function<std::int64_t(std::int64_t)>("negate64");
    CHECK(*machine.call(negate64, std::numeric_limits<std::int64_t>::max()) ==
          -std::numeric_limits<std::int64_t>::max());
    const auto is_odd = image().function<bool(int)>("is_odd");
    CHECK(*machine.call(is_odd, 3));
    CHECK_FALSE(*machine.call(is_odd, 4));
}

TEST_CASE("reals, and both kinds mixed") {
    Machine machine(image());
    using D = double;
    const auto eight = image().function<D(D, D, D, D, D, D, D, D)>("eight");
    CHECK(*machine.call(eight, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5) == 32.0);
    const auto mixed = image().function<double(int, double, long, float)>("mixed");
    CHECK(*machine.call(mixed, 3, 0.5, -4L, 0.25f) == 0.5);
    CHECK(*machine.call(image().function<float(float)>("halved"), 5.0f) == 2.5f);
}

TEST_CASE("strings and spans are copied in, and results out") {
    Machine machine(image());
    const auto length = image().function<unsigned long(std::string_view)>("length");
    CHECK(*machine.call(length, std::string_view("hello").substr(0, 4)) == 4);
    CHECK(*machine.call(length, "") == 0);
    CHECK(*machine.call(length, std::string(3 << 20, 'x')) == 3 << 20);

    const auto sum = image().function<std::uint64_t(std::span<const std::uint32_t>, unsigned long)>("sum");
    std::vector<std::uint32_t> values(1000);
    std::iota(values.begin(), values.end(), 1u);
    CHECK(*machine.call(sum, values, values.size()) == 500500);
    CHECK(*machine.call(sum, std::span<const std::uint32_t>(), 0ul) == 0);

    std::array<unsigned char, 100> bytes{};
    CHECK(machine.call(image().function<void(Out<unsigned char>, unsigned long, int)>("fill"),
                       Out<unsigned char>{bytes}, 50ul, 7));
    CHECK(bytes[49] == 7);
    CHECK(bytes[50] == 0);

    std::array<std::uint16_t, 4> numbers{1, 2, 3, 40000};
    CHECK(machine.call(image().function<void(std::span<std::uint16_t>, unsigned long)>("twice"), numbers, 3ul));
    CHECK(numbers == std::array<std::uint16_t, 4>{2, 4, 6, 40000});

    const auto aligned = image().function<bool(std::string_view)>("aligned");
    for (const char* text : {"", "a", "abcdefghijklmnopqrstuvwxyz"})
        CHECK(*machine.call(aligned, text));
}

TEST_CASE("memory for results is zeroed, wherever it lies and whatever was there before") {
    Machine machine(image());
    const auto fill = image().function<bool(Out<unsigned char>, unsigned long)>("fill_zeros");
    for (const std::size_t bytes : {std::size_t{1000}, std::size_t{32 << 10}, std::size_t{5 << 20}})
        for (int again = 0; again < 2; ++again) {
            std::vector<unsigned char> to(bytes, 99);
            CHECK(*machine.call(fill, Out<unsigned char>{to}, to.size()));
            CHECK(to == std::vector<unsigned char>(bytes, 1));
        }
}

TEST_CASE("large arguments take no memory once the call is over") {
    tinykvm::Program small = cases::program(cases::callee());
    small.set("max-request-memory", "24");
    const auto booted = tinykvm::Image::boot(small);
    Machine machine(booted);
    const auto length = booted.function<unsigned long(std::string_view)>("length");
    const std::string text(10 << 20, 'x');
    for (int i = 0; i < 20; ++i)
        REQUIRE(*machine.call(length, text) == text.size());
    const auto refused = machine.call(length, std::string(100 << 20, 'x'));
    REQUIRE_FALSE(refused);
    CHECK(refused.fault().kind == TINYKVM_NO_MEMORY);
    CHECK(has(refused.fault().message, "max-request-memory"));
    CHECK(*machine.call(length, text) == text.size()); // nothing ran, so nothing must be reset
}

TEST_CASE("memory of the program is read and written with its own rights") {
    Machine machine(image());
    const Address text = *machine.call(image().function<Address()>("own_text"));
    CHECK(machine.read_string(text) == "text of the program");
    CHECK(has(error_of(TINYKVM_ERROR_USAGE, [&] { machine.read_string(text, 10); }), "less than 11 bytes"));
    const Address counter = *machine.call(image().function<Address()>("address_of_counter"));
    CHECK(counter == image().symbol("counter"));
    CHECK(machine.read<int>(counter) == 200);
    machine.write(counter, 41);
    CHECK(*machine.call(image().function<int()>("count")) == 42);

    error_of(TINYKVM_ERROR_USAGE, [&] { machine.write(text, 'x'); }); // read-only
    for (const std::uint64_t at : {std::uint64_t{0}, std::uint64_t{8}, std::uint64_t{0x7ff0'0000'0000},
                                   std::uint64_t{0x7fef'ffff'ffff}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
        INFO(at);
        error_of(TINYKVM_ERROR_USAGE, [&] { machine.read<std::uint64_t>(Address{at}); });
        error_of(TINYKVM_ERROR_USAGE, [&] { machine.write(Address{at}, std::uint64_t{1}); });
        error_of(TINYKVM_ERROR_USAGE, [&] { machine.read_string(Address{at}); });
    }
}

TEST_CASE("a symbol is found in the program and in its libraries, or it is said why not") {
    CHECK(image().symbol("counter").value != 0);
    Machine machine(image());
    CHECK(*machine.call(image().function<int(int)>("toupper"), int{'x'}) == 'X'); // of the C library
    CHECK(has(error_of(TINYKVM_ERROR_NOT_FOUND, [] { image().symbol("no_such_thing"); }), "no_such_thing"));
    CHECK(has(error_of(TINYKVM_ERROR_NOT_FOUND, [] { image().symbol("strlen"); }), "indirect"));
    error_of(TINYKVM_ERROR_NOT_FOUND, [] { image().symbol(""); });
}
