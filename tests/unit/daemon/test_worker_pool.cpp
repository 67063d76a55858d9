// What the daemon does with processes of functions that have been taken over, or are broken.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <functional>
#include <future>

#include "tests/catch.hpp"
#include "tests/unit/daemon/functions.hpp"

using namespace kvmserver::daemon;
using namespace kvmserver::daemon::test;
using kvmserver::protocol::Kind;
using kvmserver::protocol::Message;
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

// Waits until the worker has a request.
void take_request(Worker& worker) {
    while (!worker.act(Act::request) && !worker.gone())
        ::poll(nullptr, 0, 1);
    REQUIRE_FALSE(worker.gone());
}

void say(Worker& worker, Kind kind, std::string_view bytes = {}, bool ready = false) {
    Message message;
    message.kind = kind;
    message.ready = ready;
    const auto* const begin = reinterpret_cast<const std::uint8_t*>(&message);
    std::vector<std::uint8_t> all(begin, begin + sizeof message);
    all.insert(all.end(), bytes.begin(), bytes.end());
    REQUIRE(worker.act(Act::send, 0, all));
}

Message message_of(Kind kind) {
    Message message;
    message.kind = kind;
    return message;
}

// Whose first request is over.
std::shared_ptr<Worker> worker_that_answered(Functions& functions, const std::shared_ptr<FunctionVersion>& version) {
    const auto first = functions.ask(version);
    auto worker = ready_worker(functions);
    take_request(*worker);
    say(*worker, Kind::reply, "hello", true);
    REQUIRE(first->answered(kLong));
    return worker;
}

std::string complaint(const std::function<void()>& action) {
    try {
        action();
    } catch (const std::exception& error) {
        return error.what();
    }
    return "";
}

} // namespace

TEST_CASE("a worker that says without end that it is ready keeps nobody else waiting") {
    Functions functions(0);
    const auto broken = functions.add(), other = functions.add();
    const auto first = functions.ask(broken);
    const auto worker = ready_worker(functions);
    take_request(*worker);
    REQUIRE(worker->act_with(Act::flood, 0, Message{}));

    std::shared_ptr<Asker> second;
    auto asked = std::async(std::launch::async, [&] {
        second = functions.ask(other);
        const auto sound = ready_worker(functions);
        take_request(*sound);
        say(*sound, Kind::reply, "hello");
        return second->answered(kLong);
    });
    const bool answered = asked.wait_for(kLong) == std::future_status::ready;
    CHECK(answered);
    const std::uint8_t kill = SIGKILL;
    worker->act_with(Act::die, 0, kill); // else this would not end
    CHECK(asked.get());
    CHECK(second->reply() == "hello");
}

TEST_CASE("a machine that is told to go and stays loses its process, and its place is another's") {
    Functions functions(1);
    const auto stays = functions.add(), waits = functions.add();
    const auto first = functions.ask(stays);
    const auto worker = ready_worker(functions);
    take_request(*worker);
    say(*worker, Kind::reply, "hello");
    REQUIRE(first->answered(kLong));
    say(*worker, Kind::ready); // idle again

    const auto second = functions.ask(waits);
    const auto other = ready_worker(functions);
    take_request(*other);
    say(*other, Kind::reply, "you, too");
    CHECK(second->answered(kLong));
    CHECK(second->reply() == "you, too");
    CHECK_FALSE(worker->act(Act::assigned)); // it is gone
}

TEST_CASE("the rest of a request goes over a socket when its machine asks for one") {
    Functions functions(0);
    const auto asker = functions.ask(functions.add());
    const auto worker = ready_worker(functions);
    take_request(*worker);
    CHECK_FALSE(asker->answered(0ms));
    say(*worker, Kind::connect);
    REQUIRE(asker->answered(kLong));
    take_request(*worker); // the socket
    const std::string_view reply = "late";
    REQUIRE(worker->act(Act::reply, 0, {reinterpret_cast<const std::uint8_t*>(reply.data()), reply.size()}));
    pollfd readable{asker->socket(), POLLIN, 0};
    REQUIRE(::poll(&readable, 1, 60'000) == 1);
    char text[16];
    CHECK(std::string_view(text, static_cast<std::size_t>(::read(asker->socket(), text, sizeof text))) == reply);
}

TEST_CASE("a worker that answers twice is ended, and its first answer counts") {
    Functions functions(0);
    const auto asker = functions.ask(functions.add());
    const auto worker = ready_worker(functions);
    take_request(*worker);
    say(*worker, Kind::reply, "one");
    REQUIRE(asker->answered(kLong));
    (void)worker->act_with(Act::send, 0, [] {
        Message again;
        again.kind = Kind::reply;
        return again;
    }());
    while (worker->act(Act::assigned))
        ::poll(nullptr, 0, 1);
    CHECK(asker->reply() == "one");
}

TEST_CASE("a request whose worker dies is told so, and one that had its reply keeps it") {
    Functions functions(0);
    const auto version = functions.add(1);
    const auto dies = functions.ask(version);
    const auto worker = ready_worker(functions);
    take_request(*worker);
    const std::uint8_t kill = SIGKILL;
    SECTION("before it replied") {
        worker->act_with(Act::die, 0, kill);
        REQUIRE(dies->answered(kLong));
        REQUIRE(dies->failure());
        CHECK(dies->failure()->outcome == kvmserver::request::Outcome::worker_died);
    }
    SECTION("after it replied") {
        say(*worker, Kind::reply, "done");
        worker->act_with(Act::die, 0, kill);
        REQUIRE(dies->answered(kLong));
        CHECK(dies->reply() == "done");
    }
}

TEST_CASE("after a start that failed, the snapshot's trials are made again") {
    Functions functions(0);
    const kvmserver::Digest snapshot = functions.hold.digest(), trial = PassedTrials::name(snapshot, {"A=1"});
    functions.pool.passed_trials().note(trial, snapshot);
    const auto version = functions.add(1);
    const auto asker = functions.ask(version);
    const auto worker = functions.workers.assigned(60'000);
    REQUIRE(worker);
    CHECK(functions.pool.passed_trials().has(trial));
    const std::uint8_t status = 1;
    worker->act_with(Act::exit, 0, status);
    REQUIRE(asker->answered(kLong));
    REQUIRE(asker->problem());
    CHECK(!functions.pool.passed_trials().has(trial));
}

TEST_CASE("a request that nobody waits for any longer leaves the queue") {
    Functions functions(0);
    const auto version = functions.add(1);
    const auto first = functions.ask(version), second = functions.ask(version);
    const auto worker = ready_worker(functions);
    take_request(*worker);
    second->on_abandon();
    say(*worker, Kind::reply);
    say(*worker, Kind::ready);
    REQUIRE(first->answered(kLong));
    while (!functions.pool.quiet())
        ::poll(nullptr, 0, 1);
    CHECK_FALSE(second->answered(0ms));
    CHECK_FALSE(worker->act(Act::request));
}

TEST_CASE("a reply that says that its machine is clean gets that the next request") {
    Functions functions(0);
    const auto version = functions.add(1);
    const auto first = functions.ask(version), second = functions.ask(version);
    const auto worker = ready_worker(functions);
    take_request(*worker);
    say(*worker, Kind::reply, "one", true);
    REQUIRE(first->answered(kLong));
    take_request(*worker);
    say(*worker, Kind::reply, "two", true);
    REQUIRE(second->answered(kLong));
    CHECK(first->reply() == "one");
    CHECK(second->reply() == "two");
    while (!functions.pool.quiet())
        ::poll(nullptr, 0, 1);
}

TEST_CASE("a worker that says that a state is unsaved, and still has a machine, is ended") {
    Functions functions(0);
    const auto version = functions.add(2, 4, true);
    const auto worker = worker_that_answered(functions, version);
    REQUIRE(worker->act_with(Act::tell, 0, message_of(Kind::unsaved))); // nobody has asked yet
    CHECK(complaint([&] { functions.pool.suspend(version); }).find("was not saved") != std::string::npos);
    CHECK_FALSE(worker->act(Act::assigned)); // it is gone
    CHECK(functions.pool.live().empty());
}

namespace {

// Begins `action`, which ends the machine of this worker, and returns once that has no machine.
template <class Action>
auto without_machine(Functions& functions, Worker& worker, const Action& action) {
    auto done = std::async(std::launch::async, action);
    while (functions.pool.live().front().state != "stopping")
        ::poll(nullptr, 0, 1);
    REQUIRE(worker.act(Act::close));
    return done;
}

} // namespace

TEST_CASE("a machine that is saved is suspended before its process has ended") {
    Functions functions(0);
    const auto version = functions.add(2, 4, true);
    const auto worker = worker_that_answered(functions, version);
    auto suspended = without_machine(functions, *worker, [&] { return functions.pool.suspend(version); });
    worker->act_with(Act::tell, 0, message_of(Kind::saved)); // it may be killed before it has told us
    CHECK(suspended.get() == 1);
    CHECK(functions.pool.live().empty());
    CHECK_FALSE(worker->act(Act::assigned)); // nobody waits for it
}

TEST_CASE("a worker that was to save a machine ahead and did not goes on with it") {
    Functions functions(0);
    const auto version = functions.add(2, 4, true);
    const auto worker = worker_that_answered(functions, version);
    auto made = without_machine(functions, *worker, [&] { return functions.pool.checkpoint(version, kLong); });
    REQUIRE(worker->act_with(Act::tell, 0, message_of(Kind::unsaved)));
    const std::vector<Checkpoint> checkpoints = made.get();
    REQUIRE(checkpoints.size() == 1);
    while (!worker->act(Act::machine) && !worker->gone()) // nobody has asked; it closes what came before
        ::poll(nullptr, 0, 1);
    CHECK_FALSE(checkpoints.front().wait());
    REQUIRE(worker->act_with(Act::send, 1, Message{}));
    const auto second = functions.ask(version);
    while (!worker->act(Act::request, 1) && !worker->gone())
        ::poll(nullptr, 0, 1);
    REQUIRE(worker->act_with(Act::send, 1, message_of(Kind::reply)));
    CHECK(second->answered(kLong));
    const std::uint8_t kill = SIGKILL;
    worker->act_with(Act::die, 0, kill);
}

TEST_CASE("a worker that was to go on and says that it has saved its machine is ended") {
    Functions functions(0);
    const auto version = functions.add(2, 4, true);
    const auto worker = worker_that_answered(functions, version);
    auto made = without_machine(functions, *worker, [&] { return functions.pool.checkpoint(version, kLong); });
    worker->act_with(Act::tell, 0, message_of(Kind::saved)); // it may be killed before it has told us
    CHECK(made.get().size() == 1);
    CHECK_FALSE(worker->act(Act::assigned)); // it is gone
}

TEST_CASE("a worker whose state is unsaved serves the next request") {
    Functions functions(0);
    const auto version = functions.add(2, 4, true);
    const auto worker = worker_that_answered(functions, version);
    auto suspended = without_machine(functions, *worker, [&] { functions.pool.suspend(version); });
    REQUIRE(worker->act_with(Act::tell, 0, message_of(Kind::unsaved)));
    CHECK(complaint([&] { suspended.get(); }).find("was not saved, and stays in memory") != std::string::npos);
    REQUIRE(functions.pool.live().size() == 1);
    CHECK(functions.pool.live().front().state == "unsaved");

    const auto second = functions.ask(version);
    while (!worker->act(Act::machine) && !worker->gone())
        ::poll(nullptr, 0, 1);
    REQUIRE(worker->act_with(Act::send, 1, Message{}));
    while (!worker->act(Act::request, 1) && !worker->gone())
        ::poll(nullptr, 0, 1);
    REQUIRE(worker->act_with(Act::send, 1, message_of(Kind::reply)));
    CHECK(second->answered(kLong));

    // Its version is no longer wanted: neither is what it keeps.
    functions.pool.retire(version, WorkerPool::States::are_forgotten);
    const std::uint8_t kill = SIGKILL;
    worker->act_with(Act::die, 0, kill);
}
