#include "tinykvm/base/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace tinykvm {

void in_parallel(std::size_t count, const std::function<void(std::size_t)>& work) {
    constexpr std::size_t kMaxThreads = 8;
    const std::size_t cpus = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, kMaxThreads);
    std::atomic<std::size_t> next{0};
    std::mutex mutex; // guards the failure
    std::exception_ptr failure;
    const auto take_part = [&] {
        try {
            for (std::size_t i; (i = next++) < count;)
                work(i);
        } catch (...) {
            next = count;
            const std::lock_guard lock(mutex);
            if (!failure)
                failure = std::current_exception();
        }
    };
    std::vector<std::thread> threads; // beside this one
    try {
        while (threads.size() + 1 < std::min(cpus, count))
            threads.emplace_back(take_part);
    } catch (const std::system_error&) {
    }
    take_part();
    for (std::thread& thread : threads)
        thread.join();
    if (failure)
        std::rethrow_exception(failure);
}

} // namespace tinykvm
