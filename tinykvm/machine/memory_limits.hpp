// RLIMIT_AS and RLIMIT_DATA, which the guest kernel keeps and the host's memory calls obey.
#pragma once
#include <cstdint>

#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/memory/address_space.hpp"

namespace tinykvm {

// Whether a memory call would take more than the program allows itself; a limit of 0 is none. Costs a walk over the
// regions when there is one.
bool exceeds_own_limits(const AddressSpace& space, const abi::HostCall& call, std::uint64_t address_space,
                        std::uint64_t data);

} // namespace tinykvm
