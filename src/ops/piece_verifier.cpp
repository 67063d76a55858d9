#include "src/ops/piece_verifier.hpp"

#include <algorithm>
#include <system_error>

namespace kvmserver::ops {

namespace {

constexpr unsigned kMinVerifiers = 1, kMaxVerifiers = 4;

} // namespace

PieceVerifier::~PieceVerifier() {
    {
        const std::lock_guard lock(mutex_);
        waiting_.clear();
        complete_ = true;
    }
    join();
}

void PieceVerifier::add(std::size_t piece) {
    if (!started_) { // many imports have nothing to verify
        started_ = true;
        const unsigned wanted = std::clamp(std::thread::hardware_concurrency(), kMinVerifiers, kMaxVerifiers);
        try {
            while (threads_.size() < wanted)
                threads_.emplace_back([this] { work(); });
        } catch (const std::system_error&) { // finish() verifies them itself, if there is no thread at all
        }
    }
    {
        const std::lock_guard lock(mutex_);
        waiting_.push_back(piece);
    }
    changed_.notify_one();
}

void PieceVerifier::finish() {
    {
        const std::lock_guard lock(mutex_);
        complete_ = true;
    }
    work();
    join();
    if (failure_)
        std::rethrow_exception(failure_);
}

void PieceVerifier::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return complete_ || !waiting_.empty(); });
        if (waiting_.empty())
            return;
        const std::size_t piece = waiting_.front();
        waiting_.pop_front();
        lock.unlock();
        std::exception_ptr failure;
        try {
            cut_.verify(piece);
        } catch (...) {
            failure = std::current_exception();
        }
        lock.lock();
        if (failure && !failure_) {
            failure_ = failure;
            waiting_.clear(); // one is enough
        }
    }
}

void PieceVerifier::join() {
    changed_.notify_all();
    for (std::thread& thread : threads_)
        thread.join();
    threads_.clear();
}

} // namespace kvmserver::ops
