#include "tinykvm/elf/elf_names.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <utility>

namespace tinykvm {
namespace {

constexpr std::pair<std::uint16_t, const char*> kMachines[] =
    {
        {EM_386, "x86"},     {EM_X86_64, "x86-64"}, {EM_ARM, "arm"},         {EM_AARCH64, "aarch64"},
        {EM_RISCV, "riscv"}, {EM_PPC, "powerpc"},   {EM_PPC64, "powerpc64"}, {EM_S390, "s390"},
        {EM_MIPS, "mips"},   {EM_SPARC, "sparc"},   {EM_SPARCV9, "sparc64"}, {EM_IA_64, "ia64"},
        {EM_BPF, "bpf"},     {258, "loongarch"}, // EM_LOONGARCH, not in Debian 12's elf.h
};

constexpr std::pair<std::uint8_t, const char*> kForeignSystems[] = {
    {ELFOSABI_HPUX, "HP-UX"}, {ELFOSABI_NETBSD, "NetBSD"},   {ELFOSABI_SOLARIS, "Solaris"}, {ELFOSABI_AIX, "AIX"},
    {ELFOSABI_IRIX, "IRIX"},  {ELFOSABI_FREEBSD, "FreeBSD"}, {ELFOSABI_OPENBSD, "OpenBSD"},
};

} // namespace

std::string elf_machine_name(std::uint16_t machine) {
    for (const auto& [number, name] : kMachines)
        if (number == machine)
            return name;
    return fmt::format("machine {}", machine);
}

std::string foreign_os_name(std::uint8_t osabi) {
    for (const auto& [number, name] : kForeignSystems)
        if (number == osabi)
            return name;
    return {};
}

} // namespace tinykvm
