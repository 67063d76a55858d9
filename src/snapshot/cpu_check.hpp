// Whether a program that saw one CPU can go on on another.
#pragma once
#include <string>
#include <vector>

#include "tinykvm/machine/state.hpp"

namespace kvmserver {

struct CpuDifference {
    std::vector<std::string> features; // that the snapshot's CPU has and the host's has not
    std::vector<std::string> layout;   // vector state that is kept elsewhere in the XSAVE area
    bool compatible() const { return features.empty() && layout.empty(); }
    // "needs CPU features avx512f, avx512bw"; "" when compatible.
    std::string text() const;
};

// Compares what a program at CPL 3 can use: the feature bits of CPUID leaves 1, 7, 0xd and 0x80000001, the
// state that XCR0 enables, and its places in the XSAVE area. More features on the host are no difference.
CpuDifference compare_cpu(const tinykvm::CpuState& snapshot, const tinykvm::CpuState& host);

// The highest of "x86-64", "x86-64-v2", "-v3", "-v4" that the CPU fulfils (System V psABI,
// "Micro-Architecture Levels").
std::string cpu_level(const tinykvm::CpuState& cpu);
// Names of all its features that compare_cpu knows.
std::vector<std::string> cpu_features(const tinykvm::CpuState& cpu);

} // namespace kvmserver
