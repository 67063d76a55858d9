// Finds instructions in a program's code that leave the machine without need: SYSCALL and CPUID.
//
// SYSCALL leaves the guest's native mode on PVM hosts (docs/PERFORMANCE.md: 22 us where the host below traps the MSRs
// of the way back) and costs a mode switch on others. CPUID leaves it on all hosts. A jump costs nothing. Therefore the
// instruction before the SYSCALL or CPUID is replaced by a jump to a stub (memory/code_stubs.hpp), which executes the
// replaced instructions and jumps to the guest kernel. The SYSCALL or CPUID itself stays, and the guest kernel returns
// to the address after it. Code that jumps to it, restarts it or unwinds through it finds the file's bytes.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tinykvm {

inline constexpr std::size_t kJumpBytes = 5; // E9 and a 32-bit distance
inline constexpr std::size_t kMaxMoved = 16; // limit of CodeSite::moved

enum class SiteKind : std::uint8_t { system_call, cpuid };
inline constexpr std::size_t kTrapBytes = 2; // of SYSCALL and of CPUID

struct CodeSite {
    std::uint64_t at = 0;   // offset of the instruction that becomes a jump; it has at least kJumpBytes
    std::uint8_t moved = 0; // bytes from there to the SYSCALL or CPUID: whole, position-independent instructions
    SiteKind kind = SiteKind::system_call;
    std::array<std::byte, kMaxMoved> code{}; // begins with the moved bytes
};

// Sites whose SYSCALL or CPUID begins in [from, to) of `code`, in order. Offsets count from the beginning of `code`.
// x86 code does not mark where instructions begin, so a site counts only if decoding from many places before it gives
// the same boundaries; pass bytes around the range, too. `traps` limits the number of possible sites that are examined;
// it is decremented for each.
std::vector<CodeSite> find_code_sites(std::span<const std::byte> code, std::size_t from, std::size_t to,
                                      std::size_t* traps = nullptr);

} // namespace tinykvm
