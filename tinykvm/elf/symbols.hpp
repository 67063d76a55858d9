// The symbol at an address, for reports of crashes.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "tinykvm/elf/byte_source.hpp"

namespace tinykvm {

struct Symbol {
    std::string name; // as in the file (mangled), control characters replaced
    std::uint64_t offset = 0;
};

// The function that holds `address` (relative to the load base; absolute for ET_EXEC), from .symtab or,
// when that has been stripped, .dynsym. Nothing when there is none or the file is not sound: never throws
// for what a file contains or for one that cannot be read. Of very long tables the beginning is looked at.
std::optional<Symbol> nearest_symbol(const ByteSource& source, std::uint64_t address);
std::optional<Symbol> nearest_symbol(std::span<const std::byte> bytes, std::uint64_t address);
std::optional<Symbol> nearest_symbol(int file, std::uint64_t address);

} // namespace tinykvm
