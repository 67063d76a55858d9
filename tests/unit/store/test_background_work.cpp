#include "src/common/background_work.hpp"

#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <stdexcept>
#include <thread>

#include "tests/catch.hpp"

using kvmserver::BackgroundWork;

namespace {

// Until the task that holds it is no longer there.
void wait_until_gone(const std::weak_ptr<int>& held) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!held.expired() && std::chrono::steady_clock::now() < end)
        std::this_thread::yield();
}

} // namespace

TEST_CASE("all tasks are done when finish() returns, also when more are added after it") {
    std::atomic<int> done = 0;
    BackgroundWork work(3);
    for (const int total : {100, 200}) {
        for (int i = 0; i < 100; ++i)
            work.add([&] { ++done; });
        work.finish();
        CHECK(done == total);
    }
    work.finish();
}

TEST_CASE("tasks run beside each other and beside the thread that adds them") {
    constexpr int kThreads = 3;
    std::latch together(kThreads + 1);
    BackgroundWork work(kThreads);
    for (int i = 0; i < kThreads; ++i)
        work.add([&] { together.arrive_and_wait(); });
    together.arrive_and_wait(); // comes back only if all of them have begun
    work.finish();
}

TEST_CASE("finish() throws what a task threw, and tasks behind it do not begin") {
    std::atomic<int> done = 0;
    BackgroundWork work(1);
    std::latch added(1);
    work.add([&] {
        added.wait();
        throw std::runtime_error("the disk is full");
    });
    auto held = std::make_shared<int>();
    const std::weak_ptr<int> waiting = held;
    work.add([&done, held = std::move(held)] { ++done; });
    added.count_down();
    wait_until_gone(waiting);
    CHECK(done == 0);
    CHECK_THROWS_WITH(work.finish(), "the disk is full");
}

TEST_CASE("tasks that have not begun are given up with their object") {
    std::atomic<int> done = 0;
    std::latch begun(1);
    auto held = std::make_shared<int>();
    const std::weak_ptr<int> waiting = held;
    {
        BackgroundWork work(1);
        work.add([&] {
            begun.count_down();
            wait_until_gone(waiting);
            ++done;
        });
        begun.wait();
        work.add([&done, held = std::move(held)] { ++done; });
    }
    CHECK(done == 1);
}
