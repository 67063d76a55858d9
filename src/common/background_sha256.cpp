#include "src/common/background_sha256.hpp"

#include <system_error>
#include <utility>

namespace kvmserver {

namespace {

constexpr std::size_t kMostWaiting = 4; // parts

} // namespace

BackgroundSha256::~BackgroundSha256() {
    if (!thread_.joinable())
        return;
    {
        const std::lock_guard lock(mutex_);
        waiting_.clear();
        stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void BackgroundSha256::wait_until_idle() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return idle_ && waiting_.empty(); });
}

void BackgroundSha256::add(std::span<const std::byte> part) {
    wait_until_idle();
    sum_.update(part);
}

void BackgroundSha256::add_later(tinykvm::IoBuffer& part) {
    if (!thread_.joinable()) {
        try {
            thread_ = std::thread([this] { work(); });
        } catch (const std::system_error&) {
            return add(part);
        }
    }
    {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return waiting_.size() < kMostWaiting; });
        tinykvm::IoBuffer other;
        if (!spare_.empty()) {
            other = std::move(spare_.back());
            spare_.pop_back();
        }
        waiting_.push_back(std::exchange(part, std::move(other)));
    }
    changed_.notify_all();
}

Digest BackgroundSha256::finish() {
    wait_until_idle();
    return sum_.finish();
}

void BackgroundSha256::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
        if (stop_)
            return;
        tinykvm::IoBuffer part = std::move(waiting_.front());
        waiting_.pop_front();
        idle_ = false;
        lock.unlock();
        sum_.update(part);
        lock.lock();
        idle_ = true;
        spare_.push_back(std::move(part));
        changed_.notify_all();
    }
}

} // namespace kvmserver
