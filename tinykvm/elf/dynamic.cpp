#include "tinykvm/elf/dynamic.hpp"

#include <elf.h>

#include <algorithm>

namespace tinykvm {
namespace {

constexpr std::size_t kMaxEntries = 4096;
constexpr std::size_t kMaxNeeded = 512;
constexpr std::size_t kMaxName = 4096;
constexpr std::size_t kMaxPath = 64 << 10;

// The file offset of an address relative to the load base.
std::optional<std::uint64_t> file_offset(const ElfFile& elf, std::uint64_t address) {
    for (const ElfSegment& s : elf.segments)
        if (address >= s.vaddr && address - s.vaddr < s.filesz)
            return s.offset + (address - s.vaddr);
    return std::nullopt;
}

} // namespace

std::optional<DynamicInfo> read_dynamic(const ByteSource& source, const ElfFile& elf) {
    std::vector<Elf64_Dyn> entries(std::min<std::uint64_t>(elf.dynamic_size / sizeof(Elf64_Dyn), kMaxEntries));
    if (!source.read(elf.dynamic_offset, std::as_writable_bytes(std::span(entries))))
        return std::nullopt;
    entries.erase(std::find_if(entries.begin(), entries.end(), [](const Elf64_Dyn& d) { return d.d_tag == DT_NULL; }),
                  entries.end());

    std::optional<std::uint64_t> table, table_size;
    DynamicInfo info;
    for (const Elf64_Dyn& d : entries) {
        if (d.d_tag == DT_STRTAB)
            table = d.d_un.d_ptr;
        else if (d.d_tag == DT_STRSZ)
            table_size = d.d_un.d_val;
        else if (d.d_tag == DT_FLAGS_1)
            info.no_default_folders = d.d_un.d_val & DF_1_NODEFLIB;
    }
    const auto start = table ? file_offset(elf, *table) : std::nullopt;
    const auto text = [&](std::uint64_t at, std::size_t max) -> std::optional<std::string> {
        if (!start || at >= table_size.value_or(0) || at >= source.size() - *start)
            return std::nullopt;
        const std::uint64_t room = std::min(source.size() - *start, *table_size);
        return source.load_string(*start + at, *start + room, max);
    };
    for (const Elf64_Dyn& d : entries) {
        const bool path = d.d_tag == DT_RPATH || d.d_tag == DT_RUNPATH;
        if (!path && d.d_tag != DT_NEEDED && d.d_tag != DT_SONAME)
            continue;
        auto value = text(d.d_un.d_val, path ? kMaxPath : kMaxName);
        if (!value || (!path && value->empty()))
            return std::nullopt;
        switch (d.d_tag) {
        case DT_NEEDED: info.needed.push_back(std::move(*value)); break;
        case DT_SONAME: info.soname = std::move(*value); break;
        case DT_RPATH: info.rpath = std::move(*value); break;
        default: info.runpath = std::move(*value); break;
        }
    }
    if (info.needed.size() > kMaxNeeded)
        return std::nullopt;
    return info;
}

} // namespace tinykvm
