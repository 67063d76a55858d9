// Bytes as text. What comes from files, guests or the network is shown to people only through printable() or brief(),
// so that none of it drives a terminal.
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

// Control characters and what is not UTF-8 become \xNN. After about `longest` bytes the rest becomes "...".
std::string printable(std::string_view text, std::size_t longest = std::string_view::npos);
// For a part of a line: cut after some 200 bytes.
std::string brief(std::string_view text);

std::string to_hex(std::span<const std::uint8_t> bytes);                  // lower case
std::optional<std::vector<std::uint8_t>> from_hex(std::string_view text); // lower case only

} // namespace tinykvm
