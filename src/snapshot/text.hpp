// Bytes as text: what is read from a file is shown to people and put into JSON only through these.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvmserver {

bool is_utf8(std::string_view text);
// Control characters and what is not UTF-8 become \xNN, so that no file can drive the terminal.
std::string printable(std::string_view text);

std::string to_hex(std::span<const std::uint8_t> bytes);
std::optional<std::vector<std::uint8_t>> from_hex(std::string_view text); // lower case only

} // namespace kvmserver
