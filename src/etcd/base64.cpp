#include "src/etcd/base64.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace kvmserver::etcd {
namespace {

constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr int kNone = -1;

constexpr std::array<int, 256> kValues = [] {
    std::array<int, 256> values{};
    values.fill(kNone);
    for (std::size_t i = 0; i < kLetters.size(); ++i)
        values[static_cast<unsigned char>(kLetters[i])] = static_cast<int>(i);
    return values;
}();

} // namespace

std::string to_base64(std::string_view bytes) {
    std::string out;
    out.reserve((bytes.size() + 2) / 3 * 4);
    for (std::size_t at = 0; at < bytes.size(); at += 3) {
        const std::string_view some = bytes.substr(at, 3);
        std::uint32_t bits = 0;
        for (std::size_t i = 0; i < 3; ++i)
            bits = bits << 8 | (i < some.size() ? static_cast<unsigned char>(some[i]) : 0);
        for (std::size_t i = 0; i < 4; ++i)
            out += i <= some.size() ? kLetters[bits >> (18 - 6 * i) & 63] : '=';
    }
    return out;
}

std::optional<std::string> from_base64(std::string_view text) {
    if (text.size() % 4 != 0)
        return std::nullopt;
    const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
    text.remove_suffix(padding);
    std::string out;
    out.reserve(text.size() / 4 * 3 + 2);
    std::uint32_t bits = 0;
    int count = 0; // of bits that are not in `out`
    for (const unsigned char c : text) {
        if (kValues[c] == kNone)
            return std::nullopt;
        bits = bits << 6 | static_cast<std::uint32_t>(kValues[c]);
        count += 6;
        if (count >= 8) {
            count -= 8;
            out += static_cast<char>(bits >> count & 0xff);
        }
    }
    return out;
}

} // namespace kvmserver::etcd
