// The dynamic section of an ELF file: which libraries its interpreter will look for.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tinykvm/elf/elf_file.hpp"

namespace tinykvm {

struct DynamicInfo {
    std::string soname;
    std::vector<std::string> needed; // in order, as written
    std::string rpath, runpath;      // folders separated by ':', as written
    bool no_default_folders = false; // DF_1_NODEFLIB
};

// Empty values for a file without a dynamic section; nullopt when the section is damaged.
std::optional<DynamicInfo> read_dynamic(const ByteSource& source, const ElfFile& elf);

} // namespace tinykvm
