// Instructions in a program's code that leave the machine and need not: SYSCALL, CPUID.
//
// SYSCALL leaves the guest's native mode on PVM hosts (docs/PERFORMANCE.md: 22 us where the host below traps the MSRs
// of the way back) and costs a change of mode on the others; CPUID leaves it on all. A jump costs nothing: so the
// instruction in front of one is replaced by a jump to a stub, which does what was replaced and goes to the guest
// kernel. The SYSCALL or CPUID itself stays, and the guest kernel returns behind it: who jumps to it, restarts it or
// unwinds through it finds what the file has.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tinykvm {

inline constexpr std::size_t kJumpBytes = 5; // E9 and a distance of 32 bits
inline constexpr std::size_t kMaxMoved = 16;

enum class SiteKind : std::uint8_t { system_call, cpuid };
inline constexpr std::size_t kTrapBytes = 2; // of SYSCALL and of CPUID

struct CodeSite {
    std::uint64_t at = 0;   // offset of the instruction that becomes a jump; it has at least kJumpBytes
    std::uint8_t moved = 0; // bytes from there to the SYSCALL or CPUID: whole instructions that do the same anywhere
    SiteKind kind = SiteKind::system_call;
    std::array<std::byte, kMaxMoved> code{}; // these bytes
};

// Sites whose SYSCALL or CPUID begins in [from, to) of `code`, in order; offsets count from its beginning. Bytes around
// that range make them surer: instructions have no marks, so a site is one only where decoding from many places before
// it comes to the same. `traps`: how many places that may be one to look at, at most; what is left of it.
std::vector<CodeSite> find_code_sites(std::span<const std::byte> code, std::size_t from, std::size_t to,
                                      std::size_t* traps = nullptr);

} // namespace tinykvm
