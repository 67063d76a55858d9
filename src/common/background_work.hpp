// Tasks that other threads do, while one goes on with its own work.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kvmserver {

// add() and finish() are for one thread.
class BackgroundWork {
public:
    // Starts up to `threads` threads, when there are tasks for them.
    explicit BackgroundWork(unsigned threads) : max_threads_(threads) {}
    ~BackgroundWork(); // gives up the tasks that have not begun
    BackgroundWork(const BackgroundWork&) = delete;
    BackgroundWork& operator=(const BackgroundWork&) = delete;

    // Tasks begin in this order. None begins after one has thrown.
    void add(std::function<void()> task);
    // Waits for all tasks, and does its part where no thread can be started. Throws what one of them threw.
    void finish();

private:
    void work();
    void join();

    const unsigned max_threads_;
    std::mutex mutex_; // guards the members below
    std::condition_variable changed_;
    std::deque<std::function<void()>> waiting_;
    unsigned idle_ = 0;     // threads that wait for a task
    bool complete_ = false; // no task will be added
    std::exception_ptr failure_;

    std::vector<std::thread> threads_; // not guarded
};

} // namespace kvmserver
