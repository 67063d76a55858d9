// A SHA-256 over parts that another thread adds up, so that whoever reads them need not wait for it.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "src/common/digest.hpp"
#include "tinykvm/base/io_buffer.hpp"

namespace kvmserver {

// For one thread. The other one is started by the first add_later(); where none can be started, this one does it all.
class BackgroundSha256 {
public:
    BackgroundSha256() = default;
    ~BackgroundSha256();
    BackgroundSha256(const BackgroundSha256&) = delete;
    BackgroundSha256& operator=(const BackgroundSha256&) = delete;

    void add(std::span<const std::byte> part); // waits for all parts before
    // Takes the buffer, and gives another one for it, of any size and content. Waits when too many parts are waiting.
    void add_later(tinykvm::IoBuffer& part);
    Digest finish(); // waits for all parts; call once

private:
    void work();
    void wait_until_idle();

    Sha256 sum_;
    std::mutex mutex_; // guards the members below, and sum_ while `idle_` is false
    std::condition_variable changed_;
    std::deque<tinykvm::IoBuffer> waiting_;
    std::vector<tinykvm::IoBuffer> spare_;
    bool idle_ = true, stop_ = false;
    std::thread thread_;
};

} // namespace kvmserver
