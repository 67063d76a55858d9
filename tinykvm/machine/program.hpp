// Loading a program into a new address space: what execve(2) does.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "tinykvm/elf/elf_file.hpp"
#include "tinykvm/machine/state.hpp"
#include "tinykvm/memory/address_space.hpp"

namespace tinykvm {

// A program to boot. Scripts have been replaced by their interpreter already (resolve_program).
struct ProgramSpec {
    std::string path;                  // absolute host path of the ELF file
    std::string name;                  // as the user named it, for messages
    std::vector<std::string> args;     // args[0] included
    std::vector<std::string> env;      // "K=V"
    std::vector<std::string> late_env; // "K=V", of variables whose value is replaced when a machine is restored
    std::string cwd;                   // absolute guest path
    std::string script;                // the script that `path` interprets, "" for none
    std::string found_as;              // `path` before links were followed: locates a virtual environment
};

// Given the path of a program that was found in the search path: the path of the one to run in its place, or the same.
using Substitute = std::function<std::string(const std::string& found)>;

// Finds `name` (a path, or a word to look up in `search_path`) and follows "#!" lines. Throws UserError.
ProgramSpec resolve_program(const std::string& name, const std::vector<std::string>& args, const std::string& cwd,
                            const std::string& search_path, const Substitute& substitute = {});

// Host paths that the program may read without a permission: itself, its interpreter, its libraries, and what
// machine/runtime_files.hpp names. Throws UserError when a library is missing.
std::vector<std::string> implied_files(const ProgramSpec& program);

struct LoadedProgram {
    std::uint64_t entry = 0; // first instruction: the interpreter's entry, or the program's
    std::uint64_t stack = 0; // initial RSP
    std::uint64_t brk = 0;
    std::uint64_t random_at = 0; // the 16 bytes of AT_RANDOM
    std::vector<LateVariable> late_env;
};
struct LoadOptions {
    std::uint32_t uid = 0, gid = 0;
    std::uint64_t hwcap = 0;
    std::uint64_t signal_frame_bytes = 0; // AT_MINSIGSTKSZ
};
// Maps the program, its interpreter, the stack and the vDSO. Throws UserError and HostError.
LoadedProgram load_program(AddressSpace& space, const ProgramSpec& program, const LoadOptions& options);

} // namespace tinykvm
