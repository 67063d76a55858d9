// Names of the CPUID feature bits that matter to a program at CPL 3, as /proc/cpuinfo has them.
#pragma once
#include <cstdint>
#include <span>

#include "tinykvm/machine/state.hpp"

namespace kvmserver {

struct FeatureBit {
    std::uint32_t bit;
    const char* name;
};

// One register of one CPUID leaf. Bits that are in neither list count as features without a name.
struct FeatureRegister {
    std::uint32_t function, index;
    std::uint32_t tinykvm::CpuidLeaf::*reg;
    const char* reg_name;
    std::span<const FeatureBit> features;
    std::uint32_t ignored; // for the kernel only, hints that do no harm where they are missing, or reserved for ever
};
std::span<const FeatureRegister> feature_registers();

// The name of a component of XCR0 (bit >= 2).
const char* state_name(unsigned bit);

} // namespace kvmserver
