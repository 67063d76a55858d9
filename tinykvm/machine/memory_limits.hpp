// RLIMIT_AS and RLIMIT_DATA: the guest kernel stores them, the host's memory calls enforce them.
#pragma once
#include <cstdint>

#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/memory/address_space.hpp"

namespace tinykvm {

// Whether a memory call would exceed the limits that the program has set; 0 means no limit. If there is one, this walks
// over all regions.
bool exceeds_own_limits(const AddressSpace& space, const abi::HostCall& call, std::uint64_t address_space,
                        std::uint64_t data);

} // namespace tinykvm
