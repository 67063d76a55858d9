// Every fixed address of the guest, for both sides (freestanding).
//
//   0x0000'0000'0001'0000  program (ET_EXEC at its own addresses), brk after it
//   0x0000'5555'5555'4000  program (PIE), brk after it
//   ...                    mmap area, allocated downwards from kMmapTop
//   0x0000'7fef'f000'0000  main stack (grows down from here)
//   0x0000'7ff0'0000'0000  guest kernel region: nothing of the program may be mapped here
//
// The upper half is not used: PVM hosts keep most of it for themselves (docs/HOSTS.md).
#pragma once
#include <cstdint>

namespace tinykvm::layout {

inline constexpr std::uint64_t kUserMin = 0x10000;
inline constexpr std::uint64_t kPieBase = 0x5555'5555'4000;
inline constexpr std::uint64_t kMmapTop = 0x7fe0'0000'0000;
inline constexpr std::uint64_t kStackTop = 0x7fef'f000'0000;
inline constexpr std::uint64_t kStackBytes = 8ull << 20;
inline constexpr std::uint64_t kUserMax = 0x7ff0'0000'0000; // exclusive; the guest kernel is above

// Guest kernel region. All but kFileArea lies within 2 GiB, so that its code reaches everything relative to RIP.
inline constexpr std::uint64_t kKernelImage = 0x7ff0'0000'0000; // linked here (tinykvm/guest/kernel.ld)
inline constexpr std::uint64_t kKernelImageBytes = 32ull << 20; // room, mostly unused
// Pages of the CPU (supervisor only): GDT, TSS with its I/O bitmap, IDT, exception stack.
inline constexpr std::uint64_t kCpuTables = kKernelImage + 0x400'0000;
// One page shared by host and guest kernel: abi::Shared.
inline constexpr std::uint64_t kShared = kKernelImage + 0x410'0000;
// Time page, also read by the vDSO: abi::TimePage. Read-only for the guest.
inline constexpr std::uint64_t kTimePage = kKernelImage + 0x420'0000;
inline constexpr std::uint64_t kVdso = kKernelImage + 0x430'0000;
// Connection table, abi::Conn[kMaxConns], then the buffers: for each slot rx, then tx.
inline constexpr std::uint64_t kConnTable = kKernelImage + 0x440'0000;
inline constexpr std::uint64_t kConnBuffers = kKernelImage + 0x800'0000;
// Heap of the guest kernel: pipe buffers, thread stacks, tables that grow. Populated on touch.
inline constexpr std::uint64_t kKernelHeap = kKernelImage + 0x1000'0000;
inline constexpr std::uint64_t kKernelHeapBytes = 256ull << 20;
// Contents of the machine's own files (guest/own_files.hpp). Populated on touch.
inline constexpr std::uint64_t kFileArea = kKernelImage + 0x1'0000'0000;
inline constexpr std::uint64_t kFileAreaBytes = 56ull << 30;

} // namespace tinykvm::layout
