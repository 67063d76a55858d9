// The initial stack of a program: argc, argv, envp, auxiliary vector and their strings (System V psABI for
// x86-64, 3.4.1; order of the strings as in Linux).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/elf/elf_file.hpp"

namespace tinykvm {

inline constexpr std::uint64_t kLateEnvBytes = 4096; // room for "NAME=VALUE" and its NUL

struct StackInput {
    std::vector<std::string> args; // an empty list becomes one empty argument, as in Linux
    std::vector<std::string> env;  // "NAME=VALUE"
    // "NAME=VALUE" of variables whose values may be replaced later. They follow env in the vector. Each has
    // kLateEnvBytes of room. Their strings lie apart from the others, so /proc/self/environ does not show them.
    std::vector<std::string> late_env;
    std::string execfn; // AT_EXECFN: path by which the program was started
    std::string platform = "x86_64";
    std::array<std::byte, 16> random{}; // AT_RANDOM

    // The auxiliary vector. Addresses are absolute.
    std::uint64_t phdr = 0; // when 0, not in the vector; the same holds for vdso and minsigstksz
    std::uint64_t phnum = 0;
    std::uint64_t interpreter_base = 0; // AT_BASE: 0 for a static program
    std::uint64_t entry = 0;            // of the program, not of its interpreter
    std::uint64_t uid = 0, euid = 0, gid = 0, egid = 0;
    bool secure = false;
    std::uint64_t hwcap = 0;  // CPUID.1:EDX
    std::uint64_t hwcap2 = 0; // bit 1: FSGSBASE may be used
    std::uint64_t clock_ticks = 100;
    std::uint64_t vdso = 0;        // AT_SYSINFO_EHDR
    std::uint64_t minsigstksz = 0; // AT_MINSIGSTKSZ: size of a signal frame with the whole XSAVE area

    // Takes phdr, phnum, entry from a program loaded at `load_base` (0 for ElfType::exec).
    void describe(const ElfFile& program, std::uint64_t load_base);
};

struct InitialStack {
    std::vector<std::byte> bytes; // content of [rsp, top)
    std::uint64_t rsp = 0;        // address of argc, 16-byte aligned
    std::uint64_t random_at = 0;  // address of the 16 bytes of AT_RANDOM, which each clone must renew
    // For /proc/self/cmdline and environ: consecutive strings, each with its NUL.
    std::uint64_t args_begin = 0, args_end = 0;
    std::uint64_t env_begin = 0, env_end = 0;
    std::uint64_t auxv_begin = 0, auxv_end = 0; // for /proc/self/auxv, AT_NULL included
    std::vector<std::uint64_t> late_env;        // addresses of the strings of StackInput::late_env
};

// `top` is the end of the stack (exclusive, 16-byte aligned), `max_bytes` the limit of what this may use of it. Throws
// UserError (usage) when it does not fit or a string contains a NUL.
InitialStack build_stack(const StackInput& input, GuestVirt top, std::uint64_t max_bytes);

} // namespace tinykvm
