// Registers as gdb numbers them.
#include "tinykvm/debug/registers.hpp"

#include <cstring>

#include "tests/catch.hpp"
#include "tests/unit/debug/fake_target.hpp"

using namespace tinykvm::debug;

namespace {

constexpr std::size_t kFctrl = 32, kFtag = 34, kXmm0 = 40, kYmm0h = 60;

Registers fresh(std::uint64_t components) {
    Registers r;
    r.vector.assign(vector_bytes(components), {});
    return r;
}
std::uint64_t in_use(const Registers& r) {
    std::uint64_t value;
    std::memcpy(&value, r.vector.data() + kInUseAt, sizeof(value));
    return value;
}

} // namespace

TEST_CASE("the description lists the registers that are sent, in their order") {
    for (const std::uint64_t components : {std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{7}, std::uint64_t{0xe7}}) {
        const RegisterMap map(components);
        const std::string text = map.description();
        std::size_t count = 0, bits = 0, sent = 0;
        for (std::size_t at = 0; (at = text.find("<reg ", at)) != text.npos; ++at, ++count)
            bits += std::stoul(text.substr(text.find("bitsize=\"", at) + 9));
        for (std::size_t i = 0; i < map.count(); ++i)
            sent += map.get(fresh(components), i).size();
        CHECK(count == map.count());
        CHECK(bits == sent * 8);
        CHECK((text.find("ymm15h") != text.npos) == ((components & kAvx) != 0));
    }
}

TEST_CASE("each register keeps what is set, and changes no other") {
    for (const std::uint64_t components : {std::uint64_t{0}, std::uint64_t{7}}) {
        const RegisterMap map(components);
        for (std::size_t i = 0; i < map.count(); ++i) {
            if (i >= 18 && i < 24)
                continue; // selectors
            Registers r = fresh(components);
            std::vector<std::byte> value(map.bytes(i));
            for (std::size_t b = 0; b < std::min<std::size_t>(value.size(), 2); ++b)
                value[b] = static_cast<std::byte>(0x21 + b);
            if (i == kFtag)
                value = {std::byte{0xfc}, std::byte{0xff}, std::byte{}, std::byte{}}; // the first is valid
            std::vector<std::vector<std::byte>> before;
            map.set(r, i, value);
            CHECK(map.get(r, i) == value);
            const Registers other = fresh(components);
            for (std::size_t k = 0; k < map.count(); ++k)
                if (k != i && map.bytes(k) != 10 && k != kFtag) // the x87 ones come into use together
                    CHECK(map.get(r, k) == map.get(other, k));
        }
    }
}

TEST_CASE("a component that is not in use has its initial values, and comes into use by a change") {
    const RegisterMap map(7);
    Registers r = fresh(7);
    std::fill(r.vector.begin() + kAvxAt, r.vector.end(), std::byte{0xee}); // what XSAVE left there
    CHECK(map.get(r, kYmm0h) == std::vector<std::byte>(16));
    CHECK(map.get(r, kFctrl) == std::vector<std::byte>{std::byte{0x7f}, std::byte{3}, std::byte{}, std::byte{}});
    CHECK(in_use(r) == 0);
    const std::vector<std::byte> value(16, std::byte{0x55});
    map.set(r, kYmm0h, value);
    CHECK(in_use(r) == kAvx);
    CHECK(map.get(r, kYmm0h) == value);
    CHECK(map.get(r, kYmm0h + 1) == std::vector<std::byte>(16));
    map.set(r, kXmm0, std::vector<std::byte>(16)); // as it is already
    CHECK(in_use(r) == kAvx);
}
