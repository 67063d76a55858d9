// Writes a stopped program as an ELF core file of Linux (core(5)), which gdb and lldb open.
//
// The file holds what the program's files do not: code and constants are left out, and debuggers read them from the
// files that the note NT_FILE names. Pages that are zero are holes.
#pragma once
#include <cstdint>
#include <string>

#include "tinykvm/debug/target.hpp"

namespace tinykvm::debug {

struct Fault {
    int signal = 0;
    int code = 0;              // si_code
    std::uint64_t address = 0; // si_addr
};

struct CoreResult {
    std::uint64_t bytes = 0;    // of memory that were written
    std::uint64_t left_out = 0; // of memory, because there was more than allowed
};

// Writes to an empty file. At most `max_bytes` of memory; the threads' stacks come first. Throws HostError.
CoreResult write_core(Target& target, const Fault& fault, int fd, std::uint64_t max_bytes);

} // namespace tinykvm::debug
