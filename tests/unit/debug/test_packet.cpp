// Packets of gdb's remote protocol.
#include "tinykvm/debug/packet.hpp"

#include <random>

#include "tests/catch.hpp"

using namespace tinykvm::debug;
using Kind = PacketReader::Kind;

namespace {

std::vector<PacketReader::Event> read(std::string_view bytes, std::size_t piece = ~std::size_t{0}) {
    PacketReader reader;
    std::vector<PacketReader::Event> events;
    for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size())))
        reader.feed(bytes.substr(0, piece), events);
    return events;
}

} // namespace

TEST_CASE("a packet is found between others, in any pieces") {
    for (const std::size_t piece : {1, 2, 3, 100}) {
        const auto events = read("+$m0,4#fd+$?#3f\x03-", piece);
        REQUIRE(events.size() == 4);
        CHECK(events[0].kind == Kind::packet);
        CHECK(events[0].payload == "m0,4");
        CHECK(events[1].payload == "?");
        CHECK(events[2].kind == Kind::interrupt);
        CHECK(events[3].kind == Kind::repeat);
    }
}

TEST_CASE("what is framed is read again, with bytes that need an escape") {
    std::string bytes;
    for (int i = 0; i < 256; ++i)
        bytes += static_cast<char>(i);
    const auto events = read(framed("X1,2:" + escaped(bytes)));
    REQUIRE(events.size() == 1);
    CHECK(events[0].kind == Kind::packet);
    CHECK(events[0].payload == "X1,2:" + bytes);
}

TEST_CASE("a wrong checksum and a packet that is too long are damaged, the next one is not") {
    for (const std::string& bad :
         {std::string("$m0,4#00"), std::string("$m0,4#zz"), framed(std::string(kMaxPayload + 1, 'a'))}) {
        const auto events = read(bad + "$?#3f");
        REQUIRE(events.size() == 2);
        CHECK(events[0].kind == Kind::damaged);
        CHECK(events[0].payload.empty());
        CHECK(events[1].payload == "?");
    }
}

TEST_CASE("a packet whose end is lost does not swallow the next") {
    const auto events = read("$m0,$?#3f");
    REQUIRE(events.size() == 1);
    CHECK(events[0].payload == "?");
}

TEST_CASE("random bytes end no packet with a wrong checksum") {
    std::mt19937 random(1);
    const std::string_view likely = "$#}*+-\x03mMgGXZz0123456789abcdef,;:";
    for (int round = 0; round < 2000; ++round) {
        std::string bytes;
        for (unsigned n = random() % 64; n > 0; --n)
            bytes += random() % 4 ? likely[random() % likely.size()] : static_cast<char>(random());
        for (const auto& event : read(bytes, 1 + random() % 8))
            if (event.kind == Kind::packet && event.payload.find_first_of("$#}*") == std::string::npos)
                CHECK(bytes.find(framed(event.payload)) != std::string::npos);
    }
}

TEST_CASE("numbers and hexadecimal bytes") {
    std::string_view text = "1fA,2";
    CHECK(take_number(text) == 0x1fau);
    CHECK(text == ",2");
    CHECK(!take_number(text));
    std::string_view long_one = "11111111111111111";
    CHECK(!take_number(long_one));
    CHECK(to_hex("a\xff") == "61ff");
    CHECK(from_hex("61FF")->size() == 2);
    CHECK(!from_hex("6"));
    CHECK(!from_hex("6g"));
}
