// Packets of gdb's remote protocol (gdb manual, appendix E): "$payload#checksum", with escapes. Pure: bytes in, bytes
// out.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tinykvm::debug {

// Largest payload that is accepted or sent; told to gdb as PacketSize.
inline constexpr std::size_t kMaxPayload = 0x8000;

// Cuts what a client sends into packets. Whatever the bytes, it keeps at most kMaxPayload of them.
class PacketReader {
public:
    enum class Kind {
        packet,    // `payload`, with escapes resolved
        damaged,   // a packet with a wrong checksum or that is too long: ask for it again
        interrupt, // Ctrl-C
        repeat,    // the client did not understand the last packet
    };
    struct Event {
        Kind kind;
        std::string payload;
    };
    // Appends to `events` what `bytes` complete.
    void feed(std::string_view bytes, std::vector<Event>& events);

private:
    enum class State { between, payload, escaped, checksum_1, checksum_2 };
    void finish(std::vector<Event>& events);
    State state_ = State::between;
    std::string payload_;
    bool too_long_ = false;
    std::uint8_t sum_ = 0;
    int given_sum_ = 0;
};

// The packet for a payload.
std::string framed(std::string_view payload);
// The payload's binary bytes that need an escape, escaped.
std::string escaped(std::string_view bytes);

std::string to_hex(std::span<const std::byte> bytes);
std::string to_hex(std::string_view text);
// nullopt if it is not pairs of hexadecimal digits.
std::optional<std::vector<std::byte>> from_hex(std::string_view text);

// Takes a hexadecimal number off the front. nullopt if there is none, or it has more than 16 digits.
std::optional<std::uint64_t> take_number(std::string_view& text);
// Takes `word` off the front, if it is there.
bool take(std::string_view& text, std::string_view word);

} // namespace tinykvm::debug
