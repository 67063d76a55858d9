// The vDSO of the guest: clocks without a system call, read from the time page (abi::TimePage).
//
// It is a shared object without relocations, to be mapped readable and executable at layout::kVdso (any other address
// works, too) and announced by AT_SYSINFO_EHDR. It reads the time page at layout::kTimePage.
#pragma once
#include <cstddef>
#include <span>

namespace tinykvm {

// At most two pages. Begins at a page boundary; the last page is not padded.
std::span<const std::byte> vdso_image();

} // namespace tinykvm
