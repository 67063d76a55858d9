// A token bucket: a burst of up to `capacity`, refilled at a constant rate.
#pragma once
#include <algorithm>
#include <cstdint>

namespace kvmserver::protocol {

class Allowance {
public:
    // `refill_ns`: time to refill from empty to `capacity`.
    Allowance(std::uint64_t capacity, std::uint64_t refill_ns, std::uint64_t now_ns)
        : capacity_(static_cast<double>(capacity)), per_ns_(capacity_ / static_cast<double>(refill_ns)),
          left_(capacity_), then_ns_(now_ns) {}

    bool take(std::uint64_t amount, std::uint64_t now_ns) {
        refill(now_ns);
        if (static_cast<double>(amount) > left_)
            return false;
        left_ -= static_cast<double>(amount);
        return true;
    }
    // Time until take(`amount`) would succeed; `amount` is at most the bucket's size.
    std::uint64_t wait_ns(std::uint64_t amount, std::uint64_t now_ns) {
        refill(now_ns);
        const double lacking = static_cast<double>(amount) - left_;
        return lacking <= 0 ? 0 : static_cast<std::uint64_t>(lacking / per_ns_) + 1;
    }
    bool full(std::uint64_t now_ns) {
        refill(now_ns);
        return left_ >= capacity_;
    }

private:
    void refill(std::uint64_t now_ns) {
        left_ = std::min(capacity_, left_ + static_cast<double>(now_ns - then_ns_) * per_ns_);
        then_ns_ = now_ns;
    }

    double capacity_, per_ns_, left_;
    std::uint64_t then_ns_;
};

} // namespace kvmserver::protocol
