// Pure parsing of 64-bit x86 ELF programs, their interpreters and libraries. Nothing is mapped or run.
//
// The results are validated against hostile input and need no further checks. Anything that Linux would not load, or
// that does not fit the guest's address space, is a UserError with a one-line message.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tinykvm/base/unique_fd.hpp"
#include "tinykvm/elf/byte_source.hpp"

namespace tinykvm {

enum class ElfType { exec, dyn };

// Purpose of the file. Libraries need no entry point, and only programs need an interpreter.
enum class ElfUse { program, interpreter, library };

// One PT_LOAD with memsz > 0. Guaranteed: filesz <= memsz; [offset, offset + filesz) is in the file; when
// filesz > 0, vaddr and offset are equal modulo the page size.
struct ElfSegment {
    std::uint64_t vaddr = 0;
    std::uint64_t memsz = 0;
    std::uint64_t offset = 0;
    std::uint64_t filesz = 0;
    int prot = 0; // PROT_READ | PROT_WRITE | PROT_EXEC
    std::uint64_t end() const { return vaddr + memsz; }
};

// Addresses are relative to the load base, which is 0 for ElfType::exec.
struct ElfFile {
    ElfType type = ElfType::exec;
    std::uint64_t entry = 0; // 0 in a library; else within an executable segment
    // At least one, ascending, without overlap. Two may share a page: then the file content and protection of the later
    // one apply to the whole page, as in Linux.
    std::vector<ElfSegment> segments;
    std::uint64_t low = 0;       // first byte of the first segment
    std::uint64_t high = 0;      // one past the last byte of the last segment
    std::uint64_t alignment = 0; // of the load base: a power of two, at least a page
    std::uint64_t phdr = 0;      // address of the program headers (AT_PHDR); 0 when no segment contains them
    std::uint16_t phnum = 0;     // AT_PHNUM; AT_PHENT is kElfPhent
    std::string interpreter;     // absolute path, empty for a static program
    bool executable_stack = false;
    std::uint64_t dynamic_offset = 0; // PT_DYNAMIC in the file, for read_dynamic; size 0 when there is none
    std::uint64_t dynamic_size = 0;
};

inline constexpr std::uint64_t kElfPhent = 56;

// `name` begins each error message: the path as the user knows it.
ElfFile parse_elf(const ByteSource& source, const std::string& name, ElfUse use = ElfUse::program);
ElfFile parse_elf(std::span<const std::byte> bytes, const std::string& name, ElfUse use = ElfUse::program);

// Whether the file begins with the ELF magic.
bool is_elf(const ByteSource& source);

// Opens a regular file for reading. UserError: not_found, not_permitted, or failure (a folder, a device...).
UniqueFd open_program_file(const std::string& path);

struct OpenElf {
    UniqueFd fd; // read-only
    ElfFile elf;
};
OpenElf open_elf(const std::string& path, ElfUse use = ElfUse::program);

} // namespace tinykvm
