// Times of one thing, for their median: on a busy machine the mean tells of the others.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "tinykvm/machine/clock.hpp"

namespace kvmserver::micro {

class Samples {
public:
    void add(std::uint64_t ns) { ns_.push_back(ns); }
    double median_us() {
        if (ns_.empty())
            return 0;
        const auto middle = ns_.begin() + static_cast<std::ptrdiff_t>(ns_.size() / 2);
        std::nth_element(ns_.begin(), middle, ns_.end());
        return static_cast<double>(*middle) / 1e3;
    }

private:
    std::vector<std::uint64_t> ns_;
};

// What `body` takes.
template <class Body>
std::uint64_t timed_ns(Body&& body) {
    const std::uint64_t begin = tinykvm::host_mono_ns();
    body();
    return tinykvm::host_mono_ns() - begin;
}

inline double seconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e9; }

} // namespace kvmserver::micro
