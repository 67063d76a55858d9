// Checks whether a program that saw one CPU can continue on another.
#pragma once
#include <string>
#include <vector>

#include "tinykvm/machine/state.hpp"

namespace kvmserver {

struct CpuDifference {
    std::vector<std::string> features; // that the snapshot's CPU has and the host's lacks
    std::vector<std::string> layout;   // components of vector state at another place in the XSAVE area
    bool compatible() const { return features.empty() && layout.empty(); }
    // "needs CPU features avx512f, avx512bw"; "" when compatible.
    std::string text() const;
};

// Compares what a program at CPL 3 can use: the feature bits of CPUID leaves 1, 7, 0xd and 0x80000001, the state
// components enabled in XCR0, and their places in the XSAVE area. More features on the host are no difference.
CpuDifference compare_cpu(const tinykvm::CpuState& snapshot, const tinykvm::CpuState& host);

// The highest level ("x86-64", "x86-64-v2", "-v3", "-v4") that the CPU supports (System V psABI, "Micro-Architecture
// Levels").
std::string cpu_level(const tinykvm::CpuState& cpu);
// Names of the CPU's features that compare_cpu knows.
std::vector<std::string> cpu_features(const tinykvm::CpuState& cpu);

} // namespace kvmserver
