// The symbol at an address, for crash reports, and the address of a symbol.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tinykvm/elf/byte_source.hpp"

namespace tinykvm {

struct Symbol {
    std::string name; // as in the file (mangled), control characters replaced
    std::uint64_t offset = 0;
};

// The function that contains `address` (relative to the load base; absolute for ET_EXEC), from .symtab or, if that was
// stripped, .dynsym. nullopt when there is none or the file is invalid. Never throws because of a file's content or a
// file that cannot be read. Very long tables are searched in part only.
std::optional<Symbol> nearest_symbol(const ByteSource& source, std::uint64_t address);
std::optional<Symbol> nearest_symbol(std::span<const std::byte> bytes, std::uint64_t address);
std::optional<Symbol> nearest_symbol(int file, std::uint64_t address);

// A function or variable.
struct NamedSymbol {
    std::uint64_t address = 0; // relative to the load base; absolute for ET_EXEC
    bool indirect = false;     // STT_GNU_IFUNC: the address is that of the function that chooses the real one
};
// By its name as in the file (mangled), from .symtab, or .dynsym. Global symbols go before local ones. nullopt when
// there is none or the file is invalid.
std::optional<NamedSymbol> symbol_named(const ByteSource& source, std::string_view name);

} // namespace tinykvm
