#include "tinykvm/debug/packet.hpp"

#include "tinykvm/base/text.hpp"

namespace tinykvm::debug {
namespace {

constexpr char kBegin = '$', kEnd = '#', kEscape = '}', kRunLength = '*';
constexpr char kFlip = 0x20, kInterrupt = 3, kAgain = '-';

} // namespace

void PacketReader::feed(std::string_view bytes, std::vector<Event>& events) {
    for (const char c : bytes) {
        if (c == kBegin && state_ != State::escaped) { // also within a packet, whose end was lost
            state_ = State::payload;
            payload_.clear();
            too_long_ = false;
            sum_ = 0;
            continue;
        }
        switch (state_) {
        case State::between:
            if (c == kInterrupt)
                events.push_back({Kind::interrupt, {}});
            else if (c == kAgain)
                events.push_back({Kind::repeat, {}});
            break;
        case State::payload:
            if (c == kEnd) {
                state_ = State::checksum_1;
                break;
            }
            [[fallthrough]];
        case State::escaped:
            sum_ = static_cast<std::uint8_t>(sum_ + static_cast<std::uint8_t>(c));
            if (state_ == State::payload && c == kEscape) {
                state_ = State::escaped;
                break;
            }
            if (payload_.size() < kMaxPayload)
                payload_ += state_ == State::escaped ? static_cast<char>(c ^ kFlip) : c;
            else
                too_long_ = true;
            state_ = State::payload;
            break;
        case State::checksum_1:
            given_sum_ = hex_digit(c);
            state_ = State::checksum_2;
            break;
        case State::checksum_2:
            given_sum_ = given_sum_ < 0 || hex_digit(c) < 0 ? -1 : given_sum_ * 16 + hex_digit(c);
            finish(events);
            break;
        }
    }
}

void PacketReader::finish(std::vector<Event>& events) {
    state_ = State::between;
    const bool sound = !too_long_ && given_sum_ == sum_;
    events.push_back({sound ? Kind::packet : Kind::damaged, sound ? std::move(payload_) : std::string()});
    payload_.clear();
}

std::string framed(std::string_view payload) {
    std::uint8_t sum = 0;
    for (const char c : payload)
        sum = static_cast<std::uint8_t>(sum + static_cast<std::uint8_t>(c));
    std::string out;
    out.reserve(payload.size() + 4);
    out += kBegin;
    out += payload;
    out += kEnd;
    return out + tinykvm::to_hex({&sum, 1});
}

std::string escaped(std::string_view bytes) {
    std::string out;
    out.reserve(bytes.size());
    for (const char c : bytes) {
        const bool special = c == kBegin || c == kEnd || c == kEscape || c == kRunLength;
        if (special)
            out += kEscape;
        out += special ? static_cast<char>(c ^ kFlip) : c;
    }
    return out;
}

std::string to_hex(std::span<const std::byte> bytes) {
    return tinykvm::to_hex({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
}

std::string to_hex(std::string_view text) { return to_hex(std::as_bytes(std::span(text))); }

std::optional<std::vector<std::byte>> from_hex(std::string_view text) {
    if (text.size() % 2 != 0)
        return std::nullopt;
    std::vector<std::byte> out;
    out.reserve(text.size() / 2);
    for (std::size_t i = 0; i < text.size(); i += 2) {
        const int high = hex_digit(text[i]), low = hex_digit(text[i + 1]);
        if (high < 0 || low < 0)
            return std::nullopt;
        out.push_back(static_cast<std::byte>(high * 16 + low));
    }
    return out;
}

std::optional<std::uint64_t> take_number(std::string_view& text) {
    constexpr std::size_t kMaxDigits = 16;
    std::uint64_t value = 0;
    std::size_t n = 0;
    for (; n < text.size() && hex_digit(text[n]) >= 0; ++n)
        value = value << 4 | static_cast<std::uint64_t>(hex_digit(text[n]));
    if (n == 0 || n > kMaxDigits)
        return std::nullopt;
    text.remove_prefix(n);
    return value;
}

bool take(std::string_view& text, std::string_view word) {
    if (!text.starts_with(word))
        return false;
    text.remove_prefix(word.size());
    return true;
}

} // namespace tinykvm::debug
