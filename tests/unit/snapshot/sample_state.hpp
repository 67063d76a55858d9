// A state with a different value in every field.
#pragma once
#include "tinykvm/machine/state.hpp"

namespace kvmserver::test {

tinykvm::MachineState sample_state(std::uint32_t frames);
// This host's CPU, as CPUID tells it here.
tinykvm::CpuState this_cpu();

} // namespace kvmserver::test
