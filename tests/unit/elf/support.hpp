// Shared by the tests of elf/: hand-made ELF files, temporary folders, texts of errors.
#pragma once
#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tinykvm/base/error.hpp"

namespace elf_test {

using Bytes = std::vector<std::byte>;

// The one line of the UserError that `call` throws; empty when it throws none.
template <class F>
std::string error_of(F&& call) {
    try {
        call();
    } catch (const tinykvm::UserError& error) {
        return error.what();
    }
    return {};
}

inline Bytes bytes_of(const std::string& text) {
    const auto* begin = reinterpret_cast<const std::byte*>(text.data());
    return {begin, begin + text.size()};
}

inline Bytes read_whole(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return bytes_of(std::string(std::istreambuf_iterator<char>(file), {}));
}

inline void write_whole(const std::filesystem::path& path, const Bytes& bytes) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

// A folder that goes with the test.
class TempFolder {
public:
    TempFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "kvmserver-elf-XXXXXX").string();
        if (!::mkdtemp(name.data()))
            tinykvm::throw_errno("mkdtemp " + name);
        path = std::filesystem::canonical(name);
    }
    ~TempFolder() { std::filesystem::remove_all(path); }
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;
    std::filesystem::path path;
};

// An ELF file of two segments, headers and code then data, for tests to spoil.
struct ElfBuilder {
    Elf64_Ehdr header{};
    std::vector<Elf64_Phdr> segments;
    Bytes body; // after the headers, from kBody on

    static constexpr std::uint64_t kBase = 0x400000;
    static constexpr std::uint64_t kBody = 0x400;

    explicit ElfBuilder(std::uint16_t type = ET_EXEC, std::uint64_t base = kBase) : body(0x800) {
        std::memcpy(header.e_ident, ELFMAG, SELFMAG);
        header.e_ident[EI_CLASS] = ELFCLASS64;
        header.e_ident[EI_DATA] = ELFDATA2LSB;
        header.e_ident[EI_VERSION] = EV_CURRENT;
        header.e_type = type;
        header.e_machine = EM_X86_64;
        header.e_version = EV_CURRENT;
        header.e_entry = base + kBody;
        header.e_phoff = sizeof(Elf64_Ehdr);
        header.e_ehsize = sizeof(Elf64_Ehdr);
        header.e_phentsize = sizeof(Elf64_Phdr);
        add(PT_LOAD, PF_R | PF_X, 0, base, 0x800, 0x800, 0x1000);
        add(PT_LOAD, PF_R | PF_W, 0x800, base + 0x1800, 0x400, 0x2000, 0x1000);
    }

    Elf64_Phdr& add(std::uint32_t type, std::uint32_t flags, std::uint64_t offset, std::uint64_t vaddr,
                    std::uint64_t filesz, std::uint64_t memsz, std::uint64_t align) {
        segments.push_back({type, flags, offset, vaddr, vaddr, filesz, memsz, align});
        return segments.back();
    }

    void text(std::uint64_t offset, const std::string& value) {
        std::memcpy(&body.at(offset - kBody), value.c_str(), value.size() + 1);
    }

    // Adds a dynamic section with its strings in the second segment.
    void dynamic(const std::vector<std::pair<std::int64_t, std::string>>& entries) {
        constexpr std::uint64_t kStrings = 0xa00;
        const std::uint64_t to_address = segments[1].p_vaddr - segments[1].p_offset;
        std::string strings(1, '\0');
        std::vector<Elf64_Dyn> table;
        for (const auto& [tag, value] : entries) {
            table.push_back({tag, {strings.size()}});
            strings += value + '\0';
        }
        table.push_back({DT_STRTAB, {kStrings + to_address}});
        table.push_back({DT_STRSZ, {strings.size()}});
        table.push_back({DT_NULL, {0}});
        std::memcpy(&body.at(kStrings - kBody), strings.data(), strings.size());
        const std::size_t bytes = table.size() * sizeof(Elf64_Dyn);
        std::memcpy(&body.at(0x800 - kBody), table.data(), bytes);
        add(PT_DYNAMIC, PF_R | PF_W, 0x800, 0x800 + to_address, bytes, bytes, 8);
    }

    Bytes bytes() {
        header.e_phnum = static_cast<std::uint16_t>(segments.size());
        return raw();
    }
    // Leaves e_phnum as it is.
    Bytes raw() const {
        Bytes out(kBody + body.size());
        std::memcpy(&out[0], &header, sizeof header);
        std::memcpy(&out[sizeof header], segments.data(), segments.size() * sizeof(Elf64_Phdr));
        std::memcpy(&out[kBody], body.data(), body.size());
        return out;
    }
};

} // namespace elf_test
