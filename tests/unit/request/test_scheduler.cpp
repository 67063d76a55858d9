#include "tests/catch.hpp"
#include "tests/unit/request/owner.hpp"

using namespace kvmserver::request;
using kvmserver::request::test::Owner;

namespace {

constexpr Time kSecond = 1'000'000'000;
using State = Owner::RequestState;
using MachineState = Owner::MachineState;

WorkerId only_worker(const Owner& owner) {
    REQUIRE(owner.workers.size() == 1);
    return owner.workers.begin()->first;
}

// A function's worker with as many machines as wait for it, all clean.
void start_all(Owner& owner) {
    for (auto [id, worker] : std::map(owner.workers))
        if (!worker.started)
            owner.started(id);
    for (const MachineId id : owner.machines_in(MachineState::starting))
        owner.ready(id);
}

} // namespace

TEST_CASE("the first request starts a worker and has its first machine") {
    Owner owner;
    const FunctionId function = owner.add({.max = 2, .idle_ns = kSecond, .queue = 4});
    const RequestId request = owner.ask(function);
    CHECK(owner.requests[request].state == State::waiting);
    CHECK(owner.scheduler.live(function, owner.now).state == Scheduler::Live::State::starting);
    owner.started(only_worker(owner));
    REQUIRE(owner.machines.size() == 1);
    const MachineId machine = owner.machines.begin()->first;
    owner.ready(machine);
    CHECK(owner.requests[request].state == State::in_machine);
    CHECK_FALSE(owner.scheduler.quiet());
    owner.ready(machine);
    CHECK(owner.requests[request].state == State::finished);
    CHECK(owner.scheduler.quiet());
    CHECK(owner.wrong.empty());
}

TEST_CASE("a request goes to the machine that was used last: its memory is warm") {
    Owner owner;
    const FunctionId function = owner.add({.min = 2, .max = 2, .idle_ns = 100 * kSecond, .queue = 4});
    owner.adopt(function);
    start_all(owner);
    start_all(owner);
    REQUIRE(owner.machines_in(MachineState::idle).size() == 2);
    const MachineId warm = *owner.requests[owner.ask(function)].machine;
    for (int i = 0; i < 5; ++i) {
        owner.ready(warm);
        owner.now += 1000;
        CHECK(owner.requests[owner.ask(function)].machine == warm);
    }
    CHECK(owner.wrong.empty());
}

TEST_CASE("a queue holds what it may, and not for longer than it may") {
    Owner owner;
    const FunctionId function = owner.add({.max = 1, .idle_ns = kSecond, .queue = 2, .queue_ns = 3 * kSecond});
    const RequestId served = owner.ask(function);
    start_all(owner);
    REQUIRE(owner.requests[served].state == State::in_machine);
    const RequestId first = owner.ask(function);
    owner.now += kSecond;
    const RequestId second = owner.ask(function), third = owner.ask(function);
    REQUIRE(owner.requests[third].state == State::refused);
    CHECK(owner.requests[third].refusal->why == Outcome::queue_full);
    CHECK(owner.requests[third].refusal->all_busy);
    CHECK(owner.requests[third].refusal->waiting == 2);
    owner.now += 2 * kSecond - 1;
    owner.tick();
    CHECK(owner.requests[first].state == State::waiting);
    CHECK(owner.next == owner.now + 1);
    owner.now += 1;
    owner.tick();
    REQUIRE(owner.requests[first].state == State::refused);
    CHECK(owner.requests[first].refusal->why == Outcome::queue_timeout);
    CHECK(owner.requests[second].state == State::waiting);
    // Who has gone makes room, and gets no machine.
    owner.abandon(second);
    const RequestId last = owner.ask(function);
    owner.ready(owner.machines.begin()->first);
    CHECK(owner.requests[last].state == State::in_machine);
    CHECK(owner.wrong.empty());
}

TEST_CASE("without a queue: refused while all are busy, not while the first machine is being made") {
    Owner owner;
    const FunctionId function = owner.add({.max = 2, .idle_ns = kSecond, .queue = 0});
    owner.ask(function);
    owner.ask(function);
    CHECK(owner.count(State::waiting) == 2);
    owner.ask(function); // as many wait as there could be machines
    CHECK(owner.count(State::refused) == 1);
    start_all(owner);
    start_all(owner);
    CHECK(owner.count(State::in_machine) == 2);
    owner.ask(function);
    CHECK(owner.count(State::refused) == 2);
    CHECK(owner.wrong.empty());
}

TEST_CASE("scarce machines: who waits longer gets one of a function that has idle ones, or in its turn") {
    Owner owner(2);
    const FunctionId a = owner.add({.max = 2, .idle_ns = 100 * kSecond, .queue = 8});
    const FunctionId b = owner.add({.max = 2, .idle_ns = 100 * kSecond, .queue = 8});
    owner.ask(a);
    owner.ask(a);
    start_all(owner);
    start_all(owner);
    REQUIRE(owner.count(State::in_machine) == 2);
    const RequestId of_b = owner.ask(b);
    owner.now += kSecond;
    const RequestId of_a = owner.ask(a);
    CHECK(owner.workers.size() == 1); // there is no place for another
    owner.ready(owner.machines_in(MachineState::busy).front());
    CHECK(owner.requests[of_a].state == State::waiting); // b's came first
    const std::vector<MachineId> closing = owner.machines_in(MachineState::closing);
    REQUIRE(closing.size() == 1);
    owner.gone(closing.front());
    start_all(owner);
    CHECK(owner.requests[of_b].state == State::in_machine);
    CHECK(owner.scheduler.machines() == 2);
    CHECK(owner.wrong.empty());
}

TEST_CASE("when memory is short, machines go that have been idle for longest") {
    Owner owner;
    std::vector<FunctionId> functions;
    for (int i = 0; i < 10; ++i) {
        functions.push_back(owner.add({.max = 1, .idle_ns = 1000 * kSecond, .queue = 8}));
        owner.ask(functions.back());
        start_all(owner);
        owner.ready(owner.machines_in(MachineState::busy).front());
        owner.now += kSecond;
    }
    const auto alive = [&](std::size_t i) { return owner.scheduler.live(functions[i], owner.now).machines != 0; };
    CHECK(owner.give_back() == 2); // an eighth, rounded up
    CHECK((!alive(0) && !alive(1) && alive(2)));
    CHECK(owner.give_back() == 0); // until these have gone
    for (const MachineId id : owner.machines_in(MachineState::closing))
        owner.gone(id);
    CHECK(owner.give_back() == 0); // their processes still have the memory
    for (const auto& [id, worker] : std::map(owner.workers))
        if (worker.stopped)
            owner.exits(id, true);
    owner.ask(functions[2]); // it is busy now
    CHECK(owner.give_back() == 1);
    CHECK((alive(2) && !alive(3) && alive(4)));
    CHECK(owner.wrong.empty());
}

TEST_CASE("when memory is short, what was just used stays, and the minimum, and a state that would be lost") {
    Owner owner;
    const FunctionId minimum = owner.add({.min = 1, .max = 2, .idle_ns = 1000 * kSecond, .queue = 8});
    const FunctionId kept = owner.add({.max = 1, .idle_ns = 1000 * kSecond, .queue = 8, .kept = true});
    const FunctionId saved = owner.add({.max = 1, .idle_ns = 1000 * kSecond, .queue = 8, .kept = true, .saved = true});
    for (const FunctionId function : {minimum, kept, saved})
        owner.ask(function);
    start_all(owner);
    for (const MachineId id : owner.machines_in(MachineState::busy))
        owner.ready(id);
    CHECK(owner.give_back() == 0);
    owner.now += kSecond;
    CHECK(owner.give_back() == 1);
    CHECK(owner.scheduler.live(saved, owner.now).worker == std::nullopt);
    CHECK(owner.scheduler.live(minimum, owner.now).worker != std::nullopt);
    CHECK(owner.scheduler.live(kept, owner.now).worker != std::nullopt);
    CHECK(owner.wrong.empty());
}

TEST_CASE("idle machines are given up, but for the minimum; a version without routes keeps none") {
    Owner owner;
    const FunctionId function = owner.add({.min = 1, .max = 4, .idle_ns = 10 * kSecond, .queue = 8});
    owner.adopt(function);
    for (int i = 0; i < 4; ++i)
        owner.ask(function);
    for (int i = 0; i < 4; ++i)
        start_all(owner);
    REQUIRE(owner.count(State::in_machine) == 4);
    for (const MachineId id : owner.machines_in(MachineState::busy))
        owner.ready(id);
    owner.now += 10 * kSecond;
    owner.tick();
    CHECK(owner.machines_in(MachineState::closing).size() == 3);
    for (const MachineId id : owner.machines_in(MachineState::closing))
        owner.gone(id);
    owner.now += 100 * kSecond;
    owner.tick();
    CHECK(owner.machines_in(MachineState::idle).size() == 1);
    CHECK_FALSE(owner.scheduler.forget(function));
    owner.retire(function);
    CHECK(owner.workers[only_worker(owner)].stopped);
    owner.gone(owner.machines.begin()->first);
    owner.exits(only_worker(owner), true);
    CHECK(owner.scheduler.machines() == 0);
    CHECK(owner.scheduler.forget(function));
    CHECK(owner.wrong.empty());
}

TEST_CASE("a worker that dies is replaced at once, then more and more slowly; requests are told meanwhile") {
    Owner owner;
    const FunctionId function = owner.add({.max = 1, .idle_ns = 100 * kSecond, .queue = 8});
    owner.ask(function);
    std::vector<Time> pauses;
    for (int i = 0; i < 12; ++i) {
        start_all(owner);
        owner.exits(only_worker(owner), false);
        REQUIRE(owner.workers.empty());
        owner.tick();
        const RequestId refused = owner.ask(function);
        if (owner.requests[refused].state == State::waiting) {
            pauses.push_back(0);
            continue;
        }
        REQUIRE(owner.requests[refused].refusal->why == Outcome::function_failing);
        CHECK(owner.requests[refused].refusal->failures == static_cast<unsigned>(i) + 1);
        pauses.push_back(owner.requests[refused].refusal->retry_ns);
        owner.now += pauses.back();
        owner.ask(function);
    }
    const std::vector<Time> want{0,
                                 kSecond / 5,
                                 2 * kSecond / 5,
                                 4 * kSecond / 5,
                                 8 * kSecond / 5,
                                 16 * kSecond / 5,
                                 32 * kSecond / 5,
                                 64 * kSecond / 5,
                                 128 * kSecond / 5,
                                 30 * kSecond,
                                 30 * kSecond,
                                 30 * kSecond};
    CHECK(pauses == want);
    // One that lived for a while is replaced at once again.
    start_all(owner);
    owner.now += 2 * kSecond;
    owner.exits(only_worker(owner), false);
    owner.ask(function);
    CHECK(owner.workers.size() == 1);
    CHECK(owner.wrong.empty());
}

TEST_CASE("who waits when a worker dies gets the next one, without having to ask") {
    Owner owner;
    const FunctionId function = owner.add({.max = 1, .idle_ns = 100 * kSecond, .queue = 8});
    const RequestId inside = owner.ask(function);
    start_all(owner);
    const RequestId waits = owner.ask(function);
    owner.exits(only_worker(owner), false);
    CHECK(owner.requests[inside].state == State::died);
    CHECK(owner.requests[waits].state == State::waiting);
    start_all(owner);
    CHECK(owner.requests[waits].state == State::in_machine);
    CHECK(owner.wrong.empty());
}

TEST_CASE("a worker is not given up for idleness while somebody waits for its next machine") {
    Owner owner;
    const FunctionId function = owner.add({.max = 1, .idle_ns = kSecond, .queue = 8});
    owner.ask(function);
    start_all(owner);
    owner.ready(owner.machines.begin()->first);
    owner.gone(owner.machines.begin()->first); // of its own will
    owner.ask(function);
    REQUIRE(owner.machines_in(MachineState::starting).size() == 1);
    owner.now += 2 * kSecond;
    owner.tick();
    CHECK_FALSE(owner.workers[only_worker(owner)].stopped);
    CHECK(owner.wrong.empty());
}

TEST_CASE("what does not end, or never begins, is killed after a while") {
    Owner owner;
    const FunctionId function = owner.add({.max = 1, .idle_ns = kSecond, .queue = 8});
    owner.ask(function);
    owner.started(only_worker(owner));
    owner.now += 119 * kSecond;
    owner.tick();
    CHECK_FALSE(owner.workers[only_worker(owner)].killed);
    owner.now = owner.next;
    owner.tick();
    CHECK(owner.workers[only_worker(owner)].killed);
    owner.exits(only_worker(owner), false);
    CHECK(owner.requests.begin()->second.refusal->why == Outcome::not_restored);

    owner.now += 100 * kSecond;
    owner.ask(function);
    start_all(owner);
    owner.ready(owner.machines_in(MachineState::busy).front());
    owner.now += kSecond;
    owner.tick(); // idle: it is to stop
    REQUIRE(owner.workers[only_worker(owner)].stopped);
    owner.now += 15 * kSecond;
    owner.tick();
    CHECK(owner.workers[only_worker(owner)].killed);
    CHECK(owner.wrong.empty());
}

TEST_CASE("channels of one machine that keeps its state count as one, and the last is never taken away") {
    Owner owner(1);
    const FunctionId kept = owner.add({.min = 1, .max = 3, .idle_ns = kSecond, .queue = 8, .kept = true});
    const FunctionId other = owner.add({.max = 1, .idle_ns = kSecond, .queue = 8});
    owner.adopt(kept);
    for (int i = 0; i < 3; ++i)
        owner.ask(kept);
    for (int i = 0; i < 3; ++i)
        start_all(owner);
    CHECK(owner.count(State::in_machine) == 3);
    CHECK(owner.scheduler.machines() == 1);
    CHECK(owner.scheduler.live(kept, owner.now).machines == 1);
    CHECK(owner.scheduler.live(kept, owner.now).busy == 1);
    CHECK(owner.scheduler.live(kept, owner.now).in_flight == 3);
    const RequestId waits = owner.ask(other); // there is no room for a second machine
    for (const MachineId id : owner.machines_in(MachineState::busy))
        owner.ready(id);
    owner.now += 5 * kSecond;
    owner.tick();
    for (const MachineId id : owner.machines_in(MachineState::closing))
        owner.gone(id);
    CHECK(owner.machines_in(MachineState::idle).size() == 1);
    owner.ready(*owner.requests[owner.ask(kept)].machine);
    CHECK(owner.machines_in(MachineState::idle).size() == 1); // although somebody has waited for longer
    CHECK(owner.requests[waits].state == State::waiting);
    CHECK(owner.scheduler.machines() == 1);
    CHECK(owner.wrong.empty());
}

TEST_CASE("a worker that is to rest ends after its requests; who is to wake starts without one") {
    Owner owner(1);
    const FunctionId function = owner.add({.max = 3, .idle_ns = 100 * kSecond, .queue = 8, .kept = true});
    owner.rest(function); // nothing runs
    CHECK(owner.workers.empty());
    owner.wake(function);
    const WorkerId worker = only_worker(owner);
    owner.wake(function); // once is enough
    CHECK(owner.workers.size() == 1);
    start_all(owner);
    const RequestId served = owner.ask(function);
    CHECK(owner.requests[served].state == State::in_machine);
    owner.rest(function);
    CHECK(owner.workers[worker].stopped);
    CHECK(owner.requests[served].state == State::in_machine);
    const RequestId later = owner.ask(function); // of the next worker, for which there is no room yet
    CHECK(owner.requests[later].state == State::waiting);
    owner.ready(*owner.requests[served].machine);
    CHECK(owner.requests[served].state == State::finished);
    for (const MachineId id : owner.machines_in(MachineState::closing))
        owner.gone(id);
    owner.exits(worker, true);
    CHECK(only_worker(owner) != worker);
    start_all(owner);
    CHECK(owner.requests[later].state == State::in_machine);
    // There is no room for another function's machine.
    const FunctionId other = owner.add({.max = 1, .idle_ns = kSecond, .queue = 8, .kept = true});
    owner.wake(other);
    CHECK(owner.workers.size() == 1);
    owner.retire(other);
    owner.wake(other);
    CHECK(owner.workers.size() == 1);
    CHECK(owner.wrong.empty());
}

TEST_CASE("a worker that is to rest ends also if requests wait: the next one serves them") {
    Owner owner;
    const FunctionId function = owner.add({.max = 1, .idle_ns = 100 * kSecond, .queue = 8, .kept = true});
    const RequestId served = owner.ask(function);
    start_all(owner);
    const WorkerId worker = only_worker(owner);
    const RequestId waits = owner.ask(function);
    owner.rest(function);
    CHECK(owner.workers[worker].stopped);
    CHECK(owner.workers.size() == 2);
    owner.ready(*owner.requests[served].machine);
    for (const MachineId id : owner.machines_in(MachineState::closing))
        owner.gone(id);
    owner.exits(worker, true);
    start_all(owner);
    CHECK(owner.requests[waits].state == State::in_machine);
    CHECK(owner.wrong.empty());
}

TEST_CASE("requests to a function that is held wait, whatever happens, until it is released") {
    Owner owner;
    const FunctionId function = owner.add({.min = 1, .max = 2, .idle_ns = 100 * kSecond, .queue = 8, .kept = true});
    owner.adopt(function);
    const WorkerId worker = only_worker(owner);
    start_all(owner);
    const RequestId served = owner.ask(function);
    owner.hold(function);
    CHECK(owner.workers[worker].stopped);
    const RequestId first = owner.ask(function), second = owner.ask(function);
    owner.wake(function);
    owner.adopt(function);
    owner.now += kSecond;
    owner.tick();
    owner.ready(*owner.requests[served].machine);
    CHECK(owner.requests[served].state == State::finished);
    for (const MachineId id : owner.machines_in(MachineState::closing))
        owner.gone(id);
    CHECK(owner.scheduler.has_worker(function));
    owner.exits(worker, true);
    CHECK(!owner.scheduler.has_worker(function));
    CHECK(owner.workers.empty());
    CHECK(owner.requests[first].state == State::waiting);
    owner.release(function);
    start_all(owner);
    CHECK(owner.requests[first].state == State::in_machine);
    CHECK(owner.scheduler.waiting(function) == 1);
    CHECK(owner.scheduler.take_waiting(function) == std::vector<RequestId>{second});
    CHECK(owner.scheduler.waiting(function) == 0);
    owner.requests[second].state = State::abandoned; // it is somebody else's
    CHECK(owner.wrong.empty());
}

TEST_CASE("a worker that was being started when its function was held ends at once") {
    Owner owner;
    const FunctionId function = owner.add({.max = 1, .idle_ns = kSecond, .queue = 8});
    const RequestId waits = owner.ask(function);
    const WorkerId worker = only_worker(owner);
    owner.hold(function);
    owner.started(worker);
    CHECK(owner.workers[worker].stopped);
    for (const MachineId id : owner.machines_in(MachineState::closing))
        owner.gone(id);
    owner.exits(worker, true);
    CHECK(owner.workers.empty());
    CHECK(owner.requests[waits].state == State::waiting);
    owner.release(function);
    CHECK(only_worker(owner) != worker);
    CHECK(owner.wrong.empty());
}

TEST_CASE("a worker that is ending by itself gets no more requests; its successor starts once it has exited") {
    Owner owner;
    const FunctionId function = owner.add({.min = 1, .max = 3, .idle_ns = kSecond, .queue = 8, .kept = true});
    const RequestId served = owner.ask(function), beside = owner.ask(function);
    start_all(owner);
    start_all(owner);
    owner.ready(*owner.requests[beside].machine);
    const WorkerId worker = only_worker(owner);
    owner.ending(worker);
    const RequestId later = owner.ask(function);
    CHECK(owner.requests[later].state == State::waiting);
    owner.tick();
    CHECK(owner.workers.size() == 1);
    owner.exits(worker, false);
    CHECK(owner.requests[served].state == State::died);
    CHECK(only_worker(owner) != worker);
    start_all(owner);
    CHECK(owner.requests[later].state == State::in_machine);
    CHECK(owner.wrong.empty());
}

TEST_CASE("a machine that says twice that it is clean is not believed") {
    Owner owner;
    const FunctionId function = owner.add({.max = 1, .idle_ns = kSecond, .queue = 8});
    owner.ask(function);
    start_all(owner);
    const MachineId machine = owner.machines.begin()->first;
    owner.ready(machine);
    Actions out;
    CHECK_FALSE(owner.scheduler.machine_ready(machine, owner.now, out));
    CHECK(out.empty());
    CHECK(owner.wrong.empty());
}

TEST_CASE("when the server ends, who waits is told, who is in a machine is served") {
    Owner owner;
    const FunctionId function = owner.add({.max = 1, .idle_ns = kSecond, .queue = 8});
    const RequestId inside = owner.ask(function);
    start_all(owner);
    const RequestId waits = owner.ask(function);
    owner.stop();
    CHECK(owner.requests[waits].refusal->why == Outcome::stopped);
    CHECK(owner.requests[owner.ask(function)].refusal->why == Outcome::stopped);
    CHECK(owner.requests[inside].state == State::in_machine);
    owner.ready(owner.machines.begin()->first);
    CHECK(owner.requests[inside].state == State::finished);
    owner.now += 15 * kSecond;
    owner.tick(); // its machine is to go, too
    CHECK(owner.workers[only_worker(owner)].killed);
    owner.gone(owner.machines.begin()->first);
    owner.exits(only_worker(owner), true);
    CHECK(owner.scheduler.workers() == 0);
    CHECK(owner.wrong.empty());
}
