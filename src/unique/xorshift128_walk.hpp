// Tests whether one state of xorshift128+ leads to another within some million steps (baby-step giant-step). A step is
// linear over bits: single steps go forward from the first state, and strides of kStride steps, by table, back from the
// other one.
#pragma once
#include <array>

#include "src/unique/xorshift128.hpp"

namespace kvmserver::unique {

class Xorshift128Walk { // 64 KiB of tables
public:
    static constexpr std::uint64_t kStride = 2048, kSteps = kStride * kStride;

    Xorshift128Walk();
    // Whether `to` is reached from `from` in fewer than kSteps steps.
    bool leads_to(Xorshift128 from, Xorshift128 to) const;

private:
    Xorshift128 stride_back(const Xorshift128& state) const;
    // back_[byte][value]: kStride steps back from the state that has this value in this byte and zeros elsewhere.
    std::array<std::array<Xorshift128, 256>, 16> back_;
};

} // namespace kvmserver::unique
