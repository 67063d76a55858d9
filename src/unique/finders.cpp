#include <algorithm>
#include <array>

#include "src/unique/finder.hpp"

namespace kvmserver::unique {

using tinykvm::EntropyFill;
using tinykvm::EntropyRegion;
using tinykvm::GuestVirt;

namespace {

constexpr std::array kFinders{find_cookies, find_bun, find_cpython, find_go, find_java, find_php, find_ruby, find_rust_rand, find_v8};

} // namespace

bool Findings::add(EntropyRegion region) {
    if (!memory_->writable(GuestVirt(region.at), region.bytes))
        return false;
    regions_.push_back(std::move(region));
    return true;
}

bool Findings::add_random(GuestVirt at, std::size_t bytes, std::string source) {
    return add({at.value, bytes, EntropyFill::random, {}, std::move(source)});
}

bool Findings::add_constant(GuestVirt at, std::span<const std::byte> value, std::string source) {
    const auto* first = reinterpret_cast<const std::uint8_t*>(value.data());
    return add({at.value, value.size(), EntropyFill::constant, {first, first + value.size()}, std::move(source)});
}

bool Findings::add_pid(GuestVirt at, std::string source) {
    return add({at.value, sizeof(std::uint32_t), EntropyFill::pid, {}, std::move(source)});
}

std::vector<EntropyRegion> Findings::take() {
    // Of two that overlap the one that was found first stays.
    std::vector<EntropyRegion> kept;
    for (EntropyRegion& region : regions_) {
        const auto overlaps = [&](const EntropyRegion& other) {
            return region.at < other.at + other.bytes && other.at < region.at + region.bytes;
        };
        if (std::none_of(kept.begin(), kept.end(), overlaps))
            kept.push_back(std::move(region));
    }
    regions_.clear();
    std::sort(kept.begin(), kept.end(), [](const EntropyRegion& a, const EntropyRegion& b) { return a.at < b.at; });
    return kept;
}

std::vector<EntropyRegion> find_entropy(const MemoryView& memory) {
    Findings findings(memory);
    for (const Finder find : kFinders)
        find(memory, findings);
    return findings.take();
}

} // namespace kvmserver::unique
