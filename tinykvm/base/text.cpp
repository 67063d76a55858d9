#include "tinykvm/base/text.hpp"

namespace tinykvm {

namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

// Length of the UTF-8 sequence at the beginning of `text` (RFC 3629, section 4), 0 when there is none.
std::size_t sequence_length(std::string_view text) {
    const auto at = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
    const auto tail = [&](std::size_t i) { return at(i) >= 0x80 && at(i) <= 0xbf; };
    const unsigned first = at(0);
    if (first < 0x80)
        return 1;
    if (first >= 0xc2 && first <= 0xdf)
        return tail(1) ? 2 : 0;
    if (first >= 0xe0 && first <= 0xef) {
        const unsigned low = first == 0xe0 ? 0xa0 : 0x80, high = first == 0xed ? 0x9f : 0xbf;
        return at(1) >= low && at(1) <= high && tail(2) ? 3 : 0;
    }
    if (first >= 0xf0 && first <= 0xf4) {
        const unsigned low = first == 0xf0 ? 0x90 : 0x80, high = first == 0xf4 ? 0x8f : 0xbf;
        return at(1) >= low && at(1) <= high && tail(2) && tail(3) ? 4 : 0;
    }
    return 0;
}

void append_hex(std::string& text, std::uint8_t byte) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
}

} // namespace

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const std::size_t length = sequence_length(text);
        if (length == 0)
            return false;
        text.remove_prefix(length);
    }
    return true;
}

std::string printable(std::string_view text, std::size_t longest) {
    std::string shown;
    while (!text.empty() && shown.size() < longest) {
        const std::size_t length = sequence_length(text);
        const auto first = static_cast<unsigned char>(text[0]);
        // C1 controls are two bytes in UTF-8: C2 80 to C2 9F.
        const bool c1 = length == 2 && first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0;
        const std::size_t taken = length == 0 ? 1 : length;
        if (length == 0 || c1 || first < 0x20 || first == 0x7f) {
            for (const char byte : text.substr(0, taken)) {
                shown += "\\x";
                append_hex(shown, static_cast<std::uint8_t>(byte));
            }
        } else {
            shown += text.substr(0, taken);
        }
        text.remove_prefix(taken);
    }
    return text.empty() ? shown : shown + "...";
}

std::string brief(std::string_view text) {
    constexpr std::size_t kLongest = 200;
    return printable(text, kLongest);
}

int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

std::string to_hex(std::span<const std::uint8_t> bytes) {
    std::string text;
    text.reserve(bytes.size() * 2);
    for (const std::uint8_t byte : bytes)
        append_hex(text, byte);
    return text;
}

std::optional<std::vector<std::uint8_t>> from_hex(std::string_view text) {
    if (text.size() % 2 != 0)
        return std::nullopt;
    std::vector<std::uint8_t> bytes;
    bytes.reserve(text.size() / 2);
    for (std::size_t i = 0; i < text.size(); i += 2) {
        const auto high = kDigits.find(text[i]), low = kDigits.find(text[i + 1]);
        if (high == kDigits.npos || low == kDigits.npos)
            return std::nullopt;
        bytes.push_back(static_cast<std::uint8_t>(high << 4 | low));
    }
    return bytes;
}

} // namespace tinykvm
