// Whether one state of xorshift128+ leads to another within some million steps. A step is linear: steps are made one
// by one from the first state, and kStride at once, by a table, from the other one back.
#pragma once
#include <array>

#include "src/unique/xorshift128.hpp"

namespace kvmserver::unique {

class Xorshift128Walk { // 64 KiB of tables
public:
    static constexpr std::uint64_t kStride = 2048, kSteps = kStride * kStride;

    Xorshift128Walk();
    bool leads_to(Xorshift128 from, Xorshift128 to) const;

private:
    Xorshift128 stride_back(const Xorshift128& state) const;
    std::array<std::array<Xorshift128, 256>, 16>
        back_; // kStride steps back from a state that has this value in this byte only
};

} // namespace kvmserver::unique
