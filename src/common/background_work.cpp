#include "src/common/background_work.hpp"

#include <system_error>
#include <utility>

namespace kvmserver {

BackgroundWork::~BackgroundWork() {
    {
        const std::lock_guard lock(mutex_);
        waiting_.clear();
        complete_ = true;
    }
    join();
}

void BackgroundWork::add(std::function<void()> task) {
    bool enough = false;
    {
        const std::lock_guard lock(mutex_);
        if (failure_)
            return;
        waiting_.push_back(std::move(task));
        enough = idle_ >= waiting_.size();
    }
    if (!enough && threads_.size() < max_threads_) {
        try {
            threads_.emplace_back([this] { work(); });
        } catch (const std::system_error&) { // finish() does it, if there is no thread at all
        }
    }
    changed_.notify_one();
}

void BackgroundWork::finish() {
    {
        const std::lock_guard lock(mutex_);
        complete_ = true;
    }
    work();
    join();
    complete_ = false;
    if (failure_)
        std::rethrow_exception(std::exchange(failure_, nullptr));
}

void BackgroundWork::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        ++idle_;
        changed_.wait(lock, [this] { return complete_ || !waiting_.empty(); });
        --idle_;
        if (waiting_.empty())
            return;
        const std::function<void()> task = std::move(waiting_.front());
        waiting_.pop_front();
        lock.unlock();
        std::exception_ptr failure;
        try {
            task();
        } catch (...) {
            failure = std::current_exception();
        }
        lock.lock();
        if (failure && !failure_) {
            failure_ = failure;
            waiting_.clear();
        }
    }
}

void BackgroundWork::join() {
    changed_.notify_all();
    for (std::thread& thread : threads_)
        thread.join();
    threads_.clear();
}

} // namespace kvmserver
