#include "tinykvm/elf/elf_names.hpp"

#include <elf.h>
#include <fmt/format.h>

namespace tinykvm {

std::string elf_machine_name(std::uint16_t machine) {
    switch (machine) {
    case EM_386: return "x86";
    case EM_X86_64: return "x86-64";
    case EM_ARM: return "arm";
    case EM_AARCH64: return "aarch64";
    case EM_RISCV: return "riscv";
    case EM_PPC: return "powerpc";
    case EM_PPC64: return "powerpc64";
    case EM_S390: return "s390";
    case EM_MIPS: return "mips";
    case EM_SPARC: return "sparc";
    case EM_SPARCV9: return "sparc64";
    case EM_IA_64: return "ia64";
    case EM_BPF: return "bpf";
    case 258: return "loongarch"; // EM_LOONGARCH, not in Debian 12's elf.h
    default: return fmt::format("machine {}", machine);
    }
}

std::string foreign_os_name(std::uint8_t osabi) {
    switch (osabi) {
    case ELFOSABI_HPUX: return "HP-UX";
    case ELFOSABI_NETBSD: return "NetBSD";
    case ELFOSABI_SOLARIS: return "Solaris";
    case ELFOSABI_AIX: return "AIX";
    case ELFOSABI_IRIX: return "IRIX";
    case ELFOSABI_FREEBSD: return "FreeBSD";
    case ELFOSABI_OPENBSD: return "OpenBSD";
    default: return {};
    }
}

} // namespace tinykvm
