// The scheduler under random events: what must hold whatever happens.
#include <random>
#include <set>

#include "tests/catch.hpp"
#include "tests/unit/request/owner.hpp"

using namespace kvmserver::request;
using kvmserver::request::test::Owner;

namespace {

constexpr Time kOneSecond = 1'000'000'000;
using State = Owner::RequestState;
using MachineState = Owner::MachineState;

// One after the other at random, as long as there is something that could happen.
class Chance {
public:
    Chance(Owner& owner, unsigned seed) : owner_(owner), random_(seed) {}

    void event(const std::vector<FunctionId>& functions) {
        owner_.now += below(4) ? below(1'000'000) : below(static_cast<unsigned>(kOneSecond / 4));
        switch (below(20)) {
        case 0:
        case 1:
        case 2:
        case 3:
        case 4:
        case 5: owner_.ask(pick(functions)); break;
        case 6: {
            const auto at =
                std::next(owner_.requests.begin(), below(static_cast<unsigned>(owner_.requests.size()) + 1));
            if (at != owner_.requests.end())
                owner_.abandon(at->first);
            break;
        }
        case 7:
        case 8:
        case 9: {
            std::vector<WorkerId> pending;
            for (const auto& [id, worker] : owner_.workers)
                if (!worker.started)
                    pending.push_back(id);
            if (pending.empty())
                break;
            if (below(8))
                owner_.started(pick(pending));
            else
                owner_.start_fails(pick(pending));
            break;
        }
        case 10:
        case 11:
        case 12:
        case 13:
            in_state(MachineState::busy, [&](MachineId id) {
                if (below(16))
                    owner_.ready(id);
                else
                    owner_.not_assigned(id);
            });
            break;
        case 14: in_state(MachineState::starting, [&](MachineId id) { owner_.ready(id); }); break;
        case 15: in_state(MachineState::closing, [&](MachineId id) { owner_.gone(id); }); break;
        case 16: { // a worker ends by itself, or as it was to
            std::vector<WorkerId> there;
            for (const auto& [id, worker] : owner_.workers)
                if (worker.started && (worker.stopped || worker.killed || below(10) == 0))
                    there.push_back(id);
            if (there.empty())
                break;
            const WorkerId worker = pick(there); // before below(), with every compiler
            owner_.exits(worker, below(4) != 0);
            break;
        }
        case 17: owner_.tick(); break;
        case 18: {
            const FunctionId function = pick(functions);
            if (below(3))
                owner_.adopt(function);
            else
                owner_.retire(function);
            break;
        }
        case 19:
            if (below(4) == 0) // a machine ends by itself
                in_state(below(2) ? MachineState::idle : MachineState::starting,
                         [&](MachineId id) { owner_.gone(id); });
            else if (below(4) == 0)
                in_state(MachineState::busy, [&](MachineId id) {
                    if (const WorkerId worker = owner_.machines[id].worker; !owner_.workers[worker].ending)
                        owner_.ending(worker);
                });
            break;
        }
    }

private:
    unsigned below(unsigned end) { return static_cast<unsigned>(random_() % end); }
    template <class T>
    T pick(const std::vector<T>& from) {
        return from[below(static_cast<unsigned>(from.size()))];
    }
    template <class Action>
    void in_state(MachineState state, const Action& action) {
        if (const std::vector<MachineId> there = owner_.machines_in(state); !there.empty())
            action(pick(there));
    }

    Owner& owner_;
    std::mt19937 random_;
};

// What must hold whenever nothing is happening.
void check(const Owner& owner, const std::vector<FunctionId>& functions) {
    for (const std::string& what : owner.wrong)
        FAIL(what);
    std::uint64_t counted = 0;
    std::set<WorkerId> kept; // all their machines count as one
    for (const auto& [id, worker] : owner.workers)
        counted += !worker.started;
    for (const auto& [id, machine] : owner.machines)
        counted +=
            !owner.scales.at(owner.workers.at(machine.worker).function).kept || kept.insert(machine.worker).second;
    REQUIRE(owner.scheduler.machines() == counted);
    if (owner.scheduler.max_machines() != 0)
        REQUIRE(owner.scheduler.machines() <= owner.scheduler.max_machines());
    REQUIRE(owner.scheduler.quiet() == (owner.count(State::waiting) + owner.count(State::in_machine) == 0));
    for (const FunctionId function : functions) {
        std::uint64_t idle = 0, staying = 0, waiting = 0;
        for (const auto& [id, machine] : owner.machines)
            if (const auto worker = owner.workers.at(machine.worker); worker.function == function && !worker.stopped &&
                                                                      !worker.ending &&
                                                                      machine.state != MachineState::closing) {
                ++staying;
                idle += machine.state == MachineState::idle;
            }
        for (const auto& [id, request] : owner.requests)
            waiting += request.function == function && request.state == State::waiting;
        REQUIRE(staying <= owner.scales.at(function).max);
        REQUIRE((idle == 0 || waiting == 0)); // nobody waits for what is there
        REQUIRE(waiting <= std::max(owner.scales.at(function).queue, owner.scales.at(function).max));
    }
}

// Everything that was begun goes on to its end.
void settle(Owner& owner) {
    for (const auto& [id, worker] : std::map(owner.workers))
        if (!worker.started)
            owner.started(id);
    for (const MachineState state : {MachineState::starting, MachineState::busy})
        for (const MachineId id : owner.machines_in(state))
            if (owner.machines.contains(id) && owner.machines[id].state == state)
                owner.ready(id);
    for (const MachineId id : owner.machines_in(MachineState::closing))
        owner.gone(id);
    for (const auto& [id, worker] : std::map(owner.workers))
        if (worker.killed || worker.stopped || worker.ending) {
            const bool empty = std::none_of(owner.machines.begin(), owner.machines.end(),
                                            [id = id](const auto& machine) { return machine.second.worker == id; });
            if (worker.killed || empty)
                owner.exits(id, worker.stopped);
        }
    owner.now += kOneSecond;
    owner.tick();
}

} // namespace

TEST_CASE("10,000 random events: no request is lost, doubled, or answered by a machine that is not clean") {
    for (unsigned seed = 0; seed < 24; ++seed) {
        INFO("seed " << seed);
        // More than the minimums of all functions together (4): no request waits for ever for those.
        Owner owner(seed % 3 == 0 ? 0 : seed % 3 == 1 ? 5 : 8);
        std::vector<FunctionId> functions;
        functions.push_back(owner.add({.max = 1, .idle_ns = kOneSecond, .queue = 0}));
        functions.push_back(owner.add({.max = 4, .idle_ns = kOneSecond / 10, .queue = 16, .queue_ns = kOneSecond}));
        functions.push_back(
            owner.add({.min = 1, .max = 2, .idle_ns = kOneSecond, .queue = 3, .queue_ns = kOneSecond / 3}));
        functions.push_back(owner.add({.min = 2, .max = 3, .idle_ns = 0, .queue = 100}));
        functions.push_back(owner.add({.min = 1, .max = 5, .idle_ns = kOneSecond, .queue = 9, .kept = true}));
        Chance chance(owner, seed);
        for (int i = 0; i < 10'000; ++i) {
            chance.event(functions);
            if (i % 7 == 0)
                check(owner, functions);
            std::erase_if(owner.requests, [](const auto& entry) {
                return entry.second.state != State::waiting && entry.second.state != State::in_machine;
            });
        }
        check(owner, functions);
        for (int i = 0; i < 200 && !owner.scheduler.quiet(); ++i)
            settle(owner);
        check(owner, functions);
        REQUIRE(owner.scheduler.quiet()); // nobody waits for ever
        for (const FunctionId function : functions)
            owner.retire(function);
        for (int i = 0; i < 200 && !owner.workers.empty(); ++i)
            settle(owner);
        REQUIRE(owner.workers.empty());
        REQUIRE(owner.scheduler.machines() == 0);
        for (const FunctionId function : functions)
            REQUIRE(owner.scheduler.forget(function));
    }
}
