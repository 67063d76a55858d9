// What the daemon does with processes of functions that have been taken over, or are broken.
#include <poll.h>
#include <signal.h>

#include <future>

#include "tests/catch.hpp"
#include "tests/unit/daemon/functions.hpp"

using namespace kvmserver::daemon;
using namespace kvmserver::daemon::test;
using kvmserver::link::Kind;
using kvmserver::link::Message;
using namespace std::chrono_literals;

namespace {

constexpr auto kLong = 60s; // for what comes at once, but for a loaded host

// A worker whose first machine is ready.
std::shared_ptr<Worker> ready_worker(Functions& functions) {
    auto worker = functions.workers.assigned(60'000);
    REQUIRE(worker);
    while (!worker->act(Act::machine) && !worker->gone())
        ::poll(nullptr, 0, 1);
    REQUIRE(worker->act_with(Act::send, 0, Message{}));
    return worker;
}

} // namespace

TEST_CASE("a worker that says without end that it is ready keeps nobody else waiting") {
    Functions functions(0);
    const auto broken = functions.add(), other = functions.add();
    const auto first = functions.ask(broken);
    const auto worker = ready_worker(functions);
    REQUIRE(first->answered(kLong));
    REQUIRE(worker->act_with(Act::flood, 0, Message{}));

    std::shared_ptr<Asker> second;
    auto asked = std::async(std::launch::async, [&] {
        second = functions.ask(other);
        ready_worker(functions);
        return second->answered(kLong);
    });
    const bool answered = asked.wait_for(kLong) == std::future_status::ready;
    CHECK(answered);
    const std::uint8_t kill = SIGKILL;
    worker->act_with(Act::die, 0, kill); // else this would not end
    CHECK(asked.get());
    CHECK(second->socket() >= 0);
}

TEST_CASE("a machine that is told to go and stays loses its process, and its place is another's") {
    Functions functions(1);
    const auto stays = functions.add(), waits = functions.add();
    const auto first = functions.ask(stays);
    const auto worker = ready_worker(functions);
    REQUIRE(first->answered(kLong));
    REQUIRE(worker->act(Act::request));
    REQUIRE(worker->act(Act::hang_up));
    REQUIRE(worker->act_with(Act::send, 0, Message{})); // idle again

    const auto second = functions.ask(waits);
    ready_worker(functions);
    CHECK(second->answered(kLong));
    CHECK(second->socket() >= 0);
    CHECK_FALSE(worker->act(Act::assigned)); // it is gone
}
