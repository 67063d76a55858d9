#include "tinykvm/elf/symbols.hpp"

#include <elf.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/text.hpp"
#include "tinykvm/elf/elf_file.hpp"

namespace tinykvm {
namespace {

constexpr std::size_t kMaxSymbol = 1000;
constexpr std::size_t kSymbolsAtOnce = 2048;
constexpr std::uint64_t kMaxSymbols = 4 << 20; // a hostile file may claim any number; Chromium has a tenth of this

std::optional<std::vector<Elf64_Shdr>> read_sections(const ByteSource& source) {
    const auto header = source.load<Elf64_Ehdr>(0);
    if (!header || !is_elf(source) || header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != EM_X86_64 ||
        header->e_shentsize != sizeof(Elf64_Shdr))
        return std::nullopt;
    std::vector<Elf64_Shdr> sections(header->e_shnum);
    if (!source.read(header->e_shoff, std::as_writable_bytes(std::span(sections))))
        return std::nullopt;
    return sections;
}

// Whether a symbol is a function, or an assembly label in the same code section as the address.
bool names_code(const Elf64_Sym& s, const std::vector<Elf64_Shdr>& sections, std::uint64_t address) {
    if (s.st_shndx == SHN_UNDEF || s.st_shndx >= sections.size() || s.st_value == 0 || s.st_value > address)
        return false;
    const int type = ELF64_ST_TYPE(s.st_info);
    if (s.st_size != 0)
        return type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE;
    const Elf64_Shdr& in = sections[s.st_shndx];
    return (type == STT_FUNC || type == STT_NOTYPE) && (in.sh_flags & SHF_EXECINSTR) && address >= in.sh_addr &&
           address - in.sh_addr < in.sh_size;
}

// Orders symbols at or below an address: the nearer one is better, then the one with a size, then the global one.
auto rank(const Elf64_Sym& s) { return std::tuple(s.st_value, s.st_size != 0, ELF64_ST_BIND(s.st_info) == STB_GLOBAL); }

std::optional<Symbol> search(const ByteSource& source, const std::vector<Elf64_Shdr>& sections, const Elf64_Shdr& table,
                             std::uint64_t address) {
    const Elf64_Shdr& names = sections[table.sh_link];
    if (table.sh_offset > source.size() || table.sh_entsize != sizeof(Elf64_Sym))
        return std::nullopt;
    const std::uint64_t count =
        std::min(std::min(table.sh_size, source.size() - table.sh_offset) / sizeof(Elf64_Sym), kMaxSymbols);
    std::optional<Elf64_Sym> holds, nearest;
    std::vector<Elf64_Sym> chunk;
    for (std::uint64_t i = 0; i < count; i += chunk.size()) {
        chunk.resize(std::min<std::uint64_t>(kSymbolsAtOnce, count - i));
        if (!source.read(table.sh_offset + i * sizeof(Elf64_Sym), std::as_writable_bytes(std::span(chunk))))
            return std::nullopt;
        for (const Elf64_Sym& s : chunk) {
            if (!names_code(s, sections, address))
                continue;
            if (address - s.st_value < s.st_size && (!holds || rank(*holds) < rank(s)))
                holds = s;
            if (!nearest || rank(*nearest) < rank(s))
                nearest = s;
        }
    }
    // An assembly label has no size: it extends to the next symbol.
    if (nearest && nearest->st_size == 0)
        holds = nearest;
    if (!holds || names.sh_offset > source.size())
        return std::nullopt;
    const std::uint64_t room = std::min(names.sh_size, source.size() - names.sh_offset);
    if (holds->st_name >= room)
        return std::nullopt;
    const auto name = source.load_string(names.sh_offset + holds->st_name, names.sh_offset + room, kMaxSymbol);
    if (!name || name->empty())
        return std::nullopt;
    return Symbol{printable(*name, kMaxSymbol), address - holds->st_value};
}

// Reads the names in one piece: there is a name for each symbol.
std::optional<NamedSymbol> search_name(const ByteSource& source, const std::vector<Elf64_Shdr>& sections,
                                       const Elf64_Shdr& table, std::string_view name) {
    constexpr std::uint64_t kMaxNames = 256 << 20;
    const Elf64_Shdr& strings = sections[table.sh_link];
    if (table.sh_offset > source.size() || table.sh_entsize != sizeof(Elf64_Sym) || strings.sh_offset > source.size())
        return std::nullopt;
    std::string names(std::min({strings.sh_size, source.size() - strings.sh_offset, kMaxNames}), '\0');
    if (!source.read(strings.sh_offset, std::as_writable_bytes(std::span(names))))
        return std::nullopt;
    const std::uint64_t count =
        std::min(std::min(table.sh_size, source.size() - table.sh_offset) / sizeof(Elf64_Sym), kMaxSymbols);
    std::optional<NamedSymbol> local;
    std::vector<Elf64_Sym> chunk;
    for (std::uint64_t i = 0; i < count; i += chunk.size()) {
        chunk.resize(std::min<std::uint64_t>(kSymbolsAtOnce, count - i));
        if (!source.read(table.sh_offset + i * sizeof(Elf64_Sym), std::as_writable_bytes(std::span(chunk))))
            return std::nullopt;
        for (const Elf64_Sym& s : chunk) {
            const int type = ELF64_ST_TYPE(s.st_info);
            if (s.st_shndx == SHN_UNDEF || s.st_value == 0 || s.st_name >= names.size() ||
                names.size() - s.st_name <= name.size() || names.compare(s.st_name, name.size(), name) != 0 ||
                names[s.st_name + name.size()] != '\0' ||
                (type != STT_FUNC && type != STT_OBJECT && type != STT_NOTYPE && type != STT_GNU_IFUNC))
                continue;
            const NamedSymbol found{s.st_value, type == STT_GNU_IFUNC};
            if (ELF64_ST_BIND(s.st_info) != STB_LOCAL)
                return found;
            if (!local)
                local = found;
        }
    }
    return local;
}

// Calls `look` for the tables of symbols until it finds something.
template <class Found, class Look>
std::optional<Found> in_tables(const ByteSource& source, Look&& look) {
    const auto sections = read_sections(source);
    if (!sections)
        return std::nullopt;
    for (const std::uint32_t wanted : {SHT_SYMTAB, SHT_DYNSYM}) {
        // A valid file has at most one of each, so only the first is read.
        const auto table =
            std::find_if(sections->begin(), sections->end(), [&](const Elf64_Shdr& s) { return s.sh_type == wanted; });
        if (table == sections->end() || table->sh_link >= sections->size())
            continue;
        if (std::optional<Found> found = look(*sections, *table))
            return found;
    }
    return std::nullopt;
}

} // namespace

std::optional<Symbol> nearest_symbol(const ByteSource& source, std::uint64_t address) {
    return in_tables<Symbol>(source, [&](const auto& sections, const Elf64_Shdr& table) {
        return search(source, sections, table, address);
    });
}

std::optional<NamedSymbol> symbol_named(const ByteSource& source, std::string_view name) {
    if (name.empty() || name.size() > kMaxSymbol)
        return std::nullopt;
    return in_tables<NamedSymbol>(source, [&](const auto& sections, const Elf64_Shdr& table) {
        return search_name(source, sections, table, name);
    });
}

std::optional<Symbol> nearest_symbol(std::span<const std::byte> bytes, std::uint64_t address) {
    return nearest_symbol(SpanSource(bytes), address);
}

std::optional<Symbol> nearest_symbol(int file, std::uint64_t address) {
    try {
        return nearest_symbol(FileSource(file, "a program's file"), address);
    } catch (const HostError&) {
        return std::nullopt;
    }
}

} // namespace tinykvm
