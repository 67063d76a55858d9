// Names of what an ELF header says, for error messages.
#pragma once
#include <cstdint>
#include <string>

namespace tinykvm {

std::string elf_machine_name(std::uint16_t machine); // "aarch64", "machine 4711" when unknown
// The system that an EI_OSABI value other than Linux' stands for; empty when Linux would load it.
std::string foreign_os_name(std::uint8_t osabi);

} // namespace tinykvm
