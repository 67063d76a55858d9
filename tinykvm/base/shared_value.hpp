// A pointer to a value that some threads read while another replaces it. Not std::atomic<std::shared_ptr>: in libstdc++
// 12, its load() releases the pointer without ordering what it has read, which ThreadSanitizer reports as a data race.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

namespace tinykvm {

template <class T>
class SharedValue {
public:
    SharedValue() = default;
    explicit SharedValue(std::shared_ptr<T> value) : value_(std::move(value)) {}

    std::shared_ptr<T> load() const {
        const std::lock_guard lock(mutex_);
        return value_;
    }
    void store(std::shared_ptr<T> value) {
        const std::lock_guard lock(mutex_);
        value_.swap(value); // the old value is destroyed after the lock is released
    }

private:
    mutable std::mutex mutex_;
    std::shared_ptr<T> value_;
};

} // namespace tinykvm
