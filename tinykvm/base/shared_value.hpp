// A pointer to a value that threads read while one puts another in its place. Not std::atomic<std::shared_ptr>: in
// libstdc++ 12 its load() lets go of the pointer without ordering what it has read, which ThreadSanitizer tells as a
// data race.
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
        value_.swap(value); // the old one ends when nobody waits
    }

private:
    mutable std::mutex mutex_;
    std::shared_ptr<T> value_;
};

} // namespace tinykvm
