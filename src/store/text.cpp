#include "src/store/text.hpp"

#include <cstddef>

namespace kvmserver::store {

namespace {

// Bytes of the UTF-8 character at the beginning (RFC 3629); 0 when there is none.
std::size_t character(std::string_view text) {
    const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const auto follows = [&](std::size_t i) { return i < text.size() && (at(i) & 0xc0) == 0x80; };
    const unsigned char first = at(0);
    if (first < 0x80)
        return 1;
    if (first >= 0xc2 && first <= 0xdf)
        return follows(1) ? 2 : 0;
    if (first >= 0xe0 && first <= 0xef) {
        if (!follows(1) || !follows(2) || (first == 0xe0 && at(1) < 0xa0) || (first == 0xed && at(1) > 0x9f))
            return 0;
        return 3;
    }
    if (first >= 0xf0 && first <= 0xf4) {
        if (!follows(1) || !follows(2) || !follows(3) || (first == 0xf0 && at(1) < 0x90) ||
            (first == 0xf4 && at(1) > 0x8f))
            return 0;
        return 4;
    }
    return 0;
}

} // namespace

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const std::size_t n = character(text);
        if (n == 0)
            return false;
        text.remove_prefix(n);
    }
    return true;
}

std::string printable(std::string_view text) {
    constexpr std::size_t kMost = 200;
    constexpr char kDigits[] = "0123456789abcdef";
    std::string shown;
    while (!text.empty() && shown.size() < kMost) {
        const std::size_t n = character(text);
        const auto byte = static_cast<unsigned char>(text[0]);
        // C1 controls are two bytes in UTF-8: C2 80 to C2 9F.
        const bool control = byte < 0x20 || byte == 0x7f ||
                             (n == 2 && byte == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0);
        if (n == 0 || control) {
            shown += "\\x";
            shown += kDigits[byte >> 4];
            shown += kDigits[byte & 15];
            text.remove_prefix(1);
        } else {
            shown += text.substr(0, n);
            text.remove_prefix(n);
        }
    }
    return text.empty() ? shown : shown + "...";
}

} // namespace kvmserver::store
