// Bytes as text. Bytes from files, guests or the network are shown to people only through printable() or brief(), so
// that they cannot control a terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tinykvm {

bool is_utf8(std::string_view text); // RFC 3629

// Replaces control characters and invalid UTF-8 by \xNN, and everything after about `longest` bytes by "...".
std::string printable(std::string_view text, std::size_t longest = std::string_view::npos);
// printable() for a part of a line: cut after about 200 bytes.
std::string brief(std::string_view text);

int hex_digit(char c);                                                    // 0 to 15, of either case; -1: it is none
std::string to_hex(std::span<const std::uint8_t> bytes);                  // lower case
std::optional<std::vector<std::uint8_t>> from_hex(std::string_view text); // lower case only

} // namespace tinykvm
