// Everything in elf/ that reads a file, on bytes that may be anything: for the mutation test and the fuzzer.
// Aborts when a promise about what comes out is broken; crashes are for the sanitizers to see.
#pragma once
#include <bit>
#include <cstdlib>

#include "tinykvm/abi/layout.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/elf/dynamic.hpp"
#include "tinykvm/elf/elf_file.hpp"
#include "tinykvm/elf/ld_cache.hpp"
#include "tinykvm/elf/shebang.hpp"
#include "tinykvm/elf/symbols.hpp"

namespace elf_test {

inline void expect(bool promise) {
    if (!promise)
        std::abort();
}

inline void expect_sound(const tinykvm::ElfFile& elf, std::uint64_t file_bytes, tinykvm::ElfUse use) {
    expect(!elf.segments.empty());
    expect(std::has_single_bit(elf.alignment) && elf.alignment >= tinykvm::kPageSize);
    expect(elf.low == elf.segments.front().vaddr && elf.high == elf.segments.back().end());
    expect(elf.high < tinykvm::layout::kUserMax && elf.low < elf.high);
    expect(elf.type == tinykvm::ElfType::dyn || elf.low >= tinykvm::layout::kUserMin);
    std::uint64_t end = 0;
    bool entry = use == tinykvm::ElfUse::library;
    for (const auto& s : elf.segments) {
        expect(s.vaddr >= end && s.end() > s.vaddr && s.filesz <= s.memsz);
        expect(s.filesz == 0 || (s.offset <= file_bytes && s.filesz <= file_bytes - s.offset));
        expect(s.filesz == 0 || s.vaddr % tinykvm::kPageSize == s.offset % tinykvm::kPageSize);
        entry |= (s.prot & 4) && elf.entry >= s.vaddr && elf.entry < s.end();
        end = s.end();
    }
    expect(entry);
    expect(elf.interpreter.empty() || elf.interpreter.front() == '/');
}

// How many of the three uses of the file were taken as sound.
inline int exercise(std::span<const std::byte> bytes) {
    using namespace tinykvm;
    const SpanSource source(bytes);
    int sound = 0;
    const auto one_line = [](const UserError& error) {
        const std::string text = error.what();
        expect(!text.empty() && text.find('\n') == text.npos && text.size() < 1000);
    };
    for (const ElfUse use : {ElfUse::program, ElfUse::interpreter, ElfUse::library}) {
        try {
            const ElfFile elf = parse_elf(source, "x", use);
            expect_sound(elf, bytes.size(), use);
            read_dynamic(source, elf);
            ++sound;
        } catch (const UserError& error) {
            one_line(error);
        }
    }
    for (const std::uint64_t address : {0x1ull, 0x1100ull, 0x401000ull, ~0ull})
        if (const auto symbol = nearest_symbol(source, address))
            expect(!symbol->name.empty() && symbol->offset <= address);
    for (const char* name : {"", "main", "name"})
        if (const auto symbol = symbol_named(source, name))
            expect(*name != '\0' && symbol->address != 0);
    try {
        if (const auto script = read_shebang(source, "x"))
            expect(!script->interpreter.empty());
    } catch (const UserError& error) {
        one_line(error);
    }
    LdCache::parse(bytes);
    return sound;
}

} // namespace elf_test
