#include "src/daemon/fair_queue.hpp"

#include <string>

#include "tests/catch.hpp"

using kvmserver::daemon::FairQueue;

TEST_CASE("each owner has its turn, and what is one owner's keeps its order") {
    FairQueue<std::string> queue;
    for (int n = 0; n < 5; ++n)
        queue.push("a", "a" + std::to_string(n));
    queue.push("b", "b0");
    std::string order = queue.pop();
    queue.push("c", "c0");
    queue.push("b", "b1");
    while (!queue.empty())
        order += " " + queue.pop();
    CHECK(order == "a0 b0 a1 c0 b1 a2 a3 a4");
    queue.push("a", "a5"); // as if it had never been there
    CHECK(queue.pop() == "a5");
    CHECK(queue.empty());
}
