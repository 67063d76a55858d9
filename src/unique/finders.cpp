#include <fmt/format.h>

#include <array>
#include <atomic>
#include <iterator>

#include "src/unique/finder.hpp"
#include "tinykvm/base/parallel.hpp"
#include "tinykvm/machine/entropy.hpp"

namespace kvmserver::unique {

using tinykvm::EntropyFill;
using tinykvm::EntropyRegion;
using tinykvm::GuestVirt;

namespace {

constexpr std::array kFinders{find_cookies, find_bun,  find_cpython,   find_go, find_java,
                              find_php,     find_ruby, find_rust_rand, find_v8};

} // namespace

bool Findings::add(EntropyRegion region) {
    memory_->check_time();
    const std::uint64_t at = region.at, end = at + region.bytes;
    if (!memory_->writable(GuestVirt(at), region.bytes))
        return false;
    const auto after = regions_.lower_bound(at);
    if (after != regions_.end() && after->first < end)
        return true; // an overlapping region was added before
    if (after != regions_.begin() && std::prev(after)->first + std::prev(after)->second.bytes > at)
        return true;
    if (regions_.size() == tinykvm::kMaxEntropyRegions || region.bytes > tinykvm::kMaxEntropyBytes - bytes_) {
        leave_out(fmt::format("there are more than {} or more than {} MiB of them", tinykvm::kMaxEntropyRegions,
                              tinykvm::kMaxEntropyBytes >> 20));
        return false;
    }
    bytes_ += region.bytes;
    regions_.emplace(at, std::move(region));
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

void Findings::add_all(const Findings& others) {
    for (const auto& [at, region] : others.regions_)
        add(region);
    if (!others.left_out_.empty())
        leave_out(others.left_out_);
}

std::vector<EntropyRegion> Findings::take() const {
    std::vector<EntropyRegion> all;
    for (const auto& [at, region] : regions_)
        all.push_back(region);
    return all;
}

Found find_entropy(const MemoryView& memory) {
    constexpr std::chrono::seconds kMax(30); // honest programs take milliseconds for 100 MB
    const auto deadline = std::chrono::steady_clock::now() + kMax;
    std::vector<MemoryView> views(kFinders.size(), memory); // a view is for one thread
    std::vector<Findings> found;
    for (const MemoryView& view : views) {
        view.set_deadline(deadline);
        found.emplace_back(view);
    }
    std::atomic<bool> late = false;
    tinykvm::in_parallel(kFinders.size(), [&](std::size_t i) {
        try {
            kFinders[i](views[i], found[i]);
        } catch (const OutOfTime&) {
            late = true;
        }
    });
    Findings all(memory);
    for (const Findings& one : found)
        all.add_all(one);
    if (late)
        all.leave_out(fmt::format("looking took more than {} s", kMax.count()));
    return {all.take(), all.left_out()};
}

} // namespace kvmserver::unique
