#include "src/unique/exported.hpp"

#include <elf.h>

namespace kvmserver::unique {

using tinykvm::GuestVirt;

namespace {

constexpr std::uint64_t kMaxHeaders = 64, kMaxDynamic = 256, kMaxInBucket = 4096;

std::uint32_t gnu_hash(std::string_view name) {
    std::uint32_t hash = 5381;
    for (const char c : name)
        hash = hash * 33 + static_cast<unsigned char>(c);
    return hash;
}

struct Tables {
    std::uint64_t base = 0, symbols = 0, names = 0, hash = 0;
};

std::optional<Tables> tables_of(const MemoryView& memory, GuestVirt begin) {
    const auto header = memory.value<Elf64_Ehdr>(begin);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_phentsize != sizeof(Elf64_Phdr) ||
        header->e_phnum > kMaxHeaders)
        return std::nullopt;
    Tables out;
    std::optional<std::uint64_t> base, dynamic;
    for (std::uint64_t i = 0; i < header->e_phnum; ++i) {
        const auto p = memory.value<Elf64_Phdr>(begin + header->e_phoff + i * sizeof(Elf64_Phdr));
        if (p && p->p_type == PT_LOAD && !base)
            base = begin.value - tinykvm::page_down(p->p_vaddr);
        if (p && p->p_type == PT_DYNAMIC)
            dynamic = p->p_vaddr;
    }
    if (!base || !dynamic)
        return std::nullopt;
    out.base = *base;
    // The dynamic linker may or may not have relocated the addresses in this section.
    const auto address = [&](std::uint64_t v) { return v < out.base ? v + out.base : v; };
    for (std::uint64_t i = 0; i < kMaxDynamic; ++i) {
        const auto entry = memory.value<Elf64_Dyn>(GuestVirt(out.base + *dynamic + i * sizeof(Elf64_Dyn)));
        if (!entry || entry->d_tag == DT_NULL)
            break;
        if (entry->d_tag == DT_SYMTAB)
            out.symbols = address(entry->d_un.d_ptr);
        else if (entry->d_tag == DT_STRTAB)
            out.names = address(entry->d_un.d_ptr);
        else if (entry->d_tag == DT_GNU_HASH)
            out.hash = address(entry->d_un.d_ptr);
    }
    return out.symbols && out.names && out.hash ? std::optional(out) : std::nullopt;
}

} // namespace

std::optional<Exported> exported(const MemoryView& memory, const Area& first, std::string_view name) {
    const auto tables = tables_of(memory, first.begin);
    struct Head {
        std::uint32_t buckets, first_symbol, bloom_words, bloom_shift;
    };
    const auto head = tables ? memory.value<Head>(GuestVirt(tables->hash)) : std::nullopt;
    if (!head || head->buckets == 0)
        return std::nullopt;
    const std::uint32_t hash = gnu_hash(name);
    const GuestVirt buckets(tables->hash + sizeof(Head) + std::uint64_t{head->bloom_words} * 8);
    const GuestVirt chain = buckets + std::uint64_t{head->buckets} * 4;
    const auto bucket = memory.value<std::uint32_t>(buckets + std::uint64_t{hash % head->buckets} * 4);
    if (!bucket || *bucket < head->first_symbol)
        return std::nullopt;
    for (std::uint64_t i = *bucket; i < *bucket + kMaxInBucket; ++i) {
        const auto link = memory.value<std::uint32_t>(chain + (i - head->first_symbol) * 4);
        if (!link)
            return std::nullopt;
        if ((*link | 1) == (hash | 1)) {
            const auto symbol = memory.value<Elf64_Sym>(GuestVirt(tables->symbols + i * sizeof(Elf64_Sym)));
            if (symbol && symbol->st_shndx != SHN_UNDEF &&
                memory.text(GuestVirt(tables->names + symbol->st_name)) == name)
                return Exported{GuestVirt(tables->base + symbol->st_value), symbol->st_size};
        }
        if (*link & 1)
            return std::nullopt;
    }
    return std::nullopt;
}

} // namespace kvmserver::unique
