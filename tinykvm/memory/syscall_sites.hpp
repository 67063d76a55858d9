// System calls in a program's code that can be led straight into the guest kernel.
//
// SYSCALL leaves the guest on PVM hosts (shared/KVM_HOSTS.md: from 0.9 us up to 22 us where the host below traps the MSRs of
// the way back), and costs a door on the others. A jump costs nothing: so the instruction in front of a SYSCALL is replaced by a
// jump to a stub, which does what was replaced, sets RCX as SYSCALL would, and goes to the guest kernel. The SYSCALL itself
// stays, and the guest kernel returns behind it: who jumps to it, restarts it or unwinds through it finds what the file has.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tinykvm {

inline constexpr std::size_t kJumpBytes = 5; // E9 and a distance of 32 bits
inline constexpr std::size_t kMostMoved = 16;

struct SyscallSite {
    std::uint64_t at = 0;   // offset of the instruction that becomes a jump; it has at least kJumpBytes
    std::uint8_t moved = 0; // bytes from there to the SYSCALL: whole instructions that do the same anywhere
    std::array<std::byte, kMostMoved> code{}; // these bytes
};

// Sites whose SYSCALL begins in [from, to) of `code`, in order; offsets count from its beginning. Bytes around that range make them
// surer: instructions have no marks, so a site is one only where decoding from many places before it comes to the same.
std::vector<SyscallSite> find_syscall_sites(std::span<const std::byte> code, std::size_t from, std::size_t to);

} // namespace tinykvm
