// Names of the CPUID feature bits that matter to a program at CPL 3, as in /proc/cpuinfo.
#pragma once
#include <cstdint>
#include <span>

#include "tinykvm/machine/state.hpp"

namespace kvmserver {

struct FeatureBit {
    std::uint32_t bit;
    const char* name;
};

// One register of one CPUID leaf. Bits in neither list count as unnamed features.
struct FeatureRegister {
    std::uint32_t function, index;
    std::uint32_t tinykvm::CpuidLeaf::*reg;
    const char* reg_name;
    std::span<const FeatureBit> features;
    std::uint32_t ignored; // bits for the kernel only, hints that are harmless to lose, or reserved for ever
};
std::span<const FeatureRegister> feature_registers();

// Name of a state component of XCR0 (bit >= 2).
const char* state_name(unsigned bit);

} // namespace kvmserver
