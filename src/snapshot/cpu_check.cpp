#include "src/snapshot/cpu_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "src/snapshot/cpu_features.hpp"

namespace kvmserver {

namespace {

constexpr std::uint32_t kXsaveLeaf = 0xd;
constexpr unsigned kFirstComponent = 2; // x87 and SSE lie in the legacy area, at fixed places
constexpr unsigned kLastComponent = 62;

tinykvm::CpuidLeaf leaf_of(const tinykvm::CpuState& cpu, std::uint32_t function, std::uint32_t index) {
    for (const tinykvm::CpuidLeaf& leaf : cpu.cpuid)
        if (leaf.function == function && leaf.index == index)
            return leaf;
    return {};
}

void add_once(std::vector<std::string>& names, std::string name) {
    if (std::find(names.begin(), names.end(), name) == names.end())
        names.push_back(std::move(name));
}

std::vector<std::string> features_in(const FeatureRegister& reg, std::uint32_t value) {
    std::vector<std::string> names;
    value &= ~reg.ignored;
    for (const FeatureBit& feature : reg.features) {
        if (value >> feature.bit & 1)
            names.push_back(feature.name);
        value &= ~(1u << feature.bit);
    }
    for (unsigned bit = 0; bit < 32; ++bit)
        if (value >> bit & 1)
            names.push_back(fmt::format("cpuid-{:x}.{}-{}-{}", reg.function, reg.index, reg.reg_name, bit));
    return names;
}

} // namespace

std::string CpuDifference::text() const {
    std::string text;
    if (!features.empty())
        text = fmt::format("needs CPU feature{} {}", features.size() == 1 ? "" : "s", fmt::join(features, ", "));
    if (!layout.empty())
        text += fmt::format("{}this CPU saves {} state in another place", text.empty() ? "" : "; ",
                            fmt::join(layout, ", "));
    return text;
}

CpuDifference compare_cpu(const tinykvm::CpuState& snapshot, const tinykvm::CpuState& host) {
    CpuDifference difference;
    for (const FeatureRegister& reg : feature_registers()) {
        const std::uint32_t theirs = leaf_of(snapshot, reg.function, reg.index).*reg.reg;
        const std::uint32_t ours = leaf_of(host, reg.function, reg.index).*reg.reg;
        for (std::string& name : features_in(reg, theirs & ~ours))
            difference.features.push_back(std::move(name));
    }
    for (unsigned bit = kFirstComponent; bit <= kLastComponent; ++bit) {
        if (!(snapshot.xcr0 >> bit & 1))
            continue;
        const auto theirs = leaf_of(snapshot, kXsaveLeaf, bit), ours = leaf_of(host, kXsaveLeaf, bit);
        if (!(host.xcr0 >> bit & 1))
            add_once(difference.features, fmt::format("{}-state", state_name(bit)));
        else if (theirs.eax != ours.eax || theirs.ebx != ours.ebx)
            add_once(difference.layout, state_name(bit));
    }
    return difference;
}

std::vector<std::string> cpu_features(const tinykvm::CpuState& cpu) {
    std::vector<std::string> names;
    for (const FeatureRegister& reg : feature_registers())
        for (std::string& name : features_in(reg, leaf_of(cpu, reg.function, reg.index).*reg.reg))
            names.push_back(std::move(name));
    return names;
}

std::string cpu_level(const tinykvm::CpuState& cpu) {
    using Names = std::initializer_list<std::string_view>;
    const auto features = cpu_features(cpu);
    const auto has = [&](const Names& names) {
        return std::all_of(names.begin(), names.end(), [&](std::string_view name) {
            return std::find(features.begin(), features.end(), name) != features.end();
        });
    };
    if (!has({"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"}))
        return "x86-64";
    if (!has({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}))
        return "x86-64-v2";
    if (!has({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}))
        return "x86-64-v3";
    return "x86-64-v4";
}

} // namespace kvmserver
