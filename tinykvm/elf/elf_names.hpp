// Names of values in ELF headers, for error messages.
#pragma once
#include <cstdint>
#include <string>

namespace tinykvm {

std::string elf_machine_name(std::uint16_t machine); // "aarch64", "machine 4711" when unknown
// Name of the foreign system that an EI_OSABI value denotes; empty when Linux would load the file.
std::string foreign_os_name(std::uint8_t osabi);

} // namespace tinykvm
