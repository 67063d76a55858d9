// Who owns a scheduler, in tests: does what it says, when the test lets it, and notes what must never happen.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/request/scheduler.hpp"

namespace kvmserver::request::test {

class Owner {
public:
    enum class MachineState { starting, idle, busy, closing };
    struct Machine {
        WorkerId worker;
        MachineState state = MachineState::starting;
        std::optional<RequestId> request;
    };
    struct Worker {
        FunctionId function;
        bool started = false, stopped = false, killed = false, ending = false;
    };
    enum class RequestState { waiting, in_machine, refused, finished, died, abandoned, lost };
    struct Request {
        FunctionId function;
        RequestState state = RequestState::waiting;
        std::optional<Refuse> refusal;
        std::optional<MachineId> machine;
    };

    explicit Owner(std::uint64_t max_machines = 0) : scheduler(max_machines) {}

    Scheduler scheduler;
    Time now = 1'000'000'000;
    std::map<RequestId, Request> requests;
    std::map<WorkerId, Worker> workers;
    std::map<MachineId, Machine> machines;
    std::vector<std::string> wrong;

    FunctionId add(const Scale& scale) {
        const FunctionId function = scheduler.add(scale);
        scales[function] = scale;
        return function;
    }
    void adopt(FunctionId function) {
        step([&](Actions& out) { scheduler.adopt(function, now, out); });
    }
    void retire(FunctionId function) {
        step([&](Actions& out) { scheduler.retire(function, now, out); });
    }
    void rest(FunctionId function) {
        step([&](Actions& out) { scheduler.rest(function, now, out); });
    }
    void hold(FunctionId function) {
        step([&](Actions& out) { scheduler.hold(function, now, out); });
    }
    void release(FunctionId function) {
        step([&](Actions& out) { scheduler.release(function, now, out); });
    }
    void wake(FunctionId function) {
        step([&](Actions& out) { scheduler.wake(function, now, out); });
    }
    unsigned give_back() {
        unsigned count = 0;
        step([&](Actions& out) { count = scheduler.give_back(now, out); });
        return count;
    }
    RequestId ask(FunctionId function) {
        const RequestId request{next_request_++};
        requests[request] = {.function = function, .refusal = {}, .machine = {}};
        step([&](Actions& out) { scheduler.arrive(request, function, now, out); });
        return request;
    }
    void abandon(RequestId request) {
        const bool waited = requests[request].state == RequestState::waiting;
        if (waited)
            requests[request].state = RequestState::abandoned;
        step([&](Actions&) { scheduler.abandon(request); });
    }
    void started(WorkerId worker) {
        workers[worker].started = true;
        step([&](Actions& out) { scheduler.worker_started(worker, now, out); });
    }
    void start_fails(WorkerId worker) {
        workers.erase(worker);
        step([&](Actions& out) { scheduler.start_failed(worker, now, out); });
    }
    // It is clean, for the first time or after its request.
    void ready(MachineId id) {
        Machine& machine = machines[id];
        ready_ = id;
        if (machine.state != MachineState::closing)
            machine.state = next_state(machine);
        step([&](Actions& out) {
            if (!scheduler.machine_ready(id, now, out))
                wrong.push_back("a machine that is clean is not believed");
        });
        ready_.reset();
    }
    void gone(MachineId id) {
        gone_ = id;
        step([&](Actions& out) { scheduler.machine_gone(id, now, out); });
        machines.erase(id);
        gone_.reset();
    }
    // Of an Assign that cannot be carried out.
    void not_assigned(MachineId id) {
        Machine& machine = machines[id];
        requests[*machine.request].state = RequestState::lost;
        machine.request.reset();
        machine.state = next_state(machine);
        step([&](Actions& out) { scheduler.not_assigned(id, now, out); });
    }
    // It says that it is ending by itself.
    void ending(WorkerId id) {
        workers[id].ending = true;
        for (auto& [machine_id, machine] : machines)
            if (machine.worker == id && machine.state != MachineState::busy)
                machine.state = MachineState::closing;
        scheduler.worker_ending(id, now);
    }
    void exits(WorkerId id, bool as_wanted) {
        exiting_ = id;
        step([&](Actions& out) { scheduler.worker_exited(id, as_wanted, now, out); });
        exiting_.reset();
        std::erase_if(machines, [id](const auto& machine) { return machine.second.worker == id; });
        workers.erase(id);
    }
    void tick() {
        step([&](Actions& out) { next = scheduler.tick(now, out); });
    }
    void stop() {
        step([&](Actions& out) { scheduler.stop(now, out); });
    }

    Time next = 0; // when tick() wants to be called again
    std::map<FunctionId, Scale> scales;

    std::uint64_t count(RequestState state) const {
        std::uint64_t count = 0;
        for (const auto& [id, request] : requests)
            count += request.state == state;
        return count;
    }
    std::vector<MachineId> machines_in(MachineState state) const {
        std::vector<MachineId> all;
        for (const auto& [id, machine] : machines)
            if (machine.state == state)
                all.push_back(id);
        return all;
    }

private:
    template <class Event>
    void step(const Event& event) {
        Actions actions;
        event(actions);
        for (const Action& action : actions)
            std::visit([this](const auto& what) { this->carry_out(what); }, action);
    }
    MachineState next_state(const Machine& machine) {
        const Worker& worker = workers[machine.worker];
        return worker.stopped || worker.ending ? MachineState::closing : MachineState::idle;
    }
    void must(bool holds, const char* what) {
        if (!holds)
            wrong.emplace_back(what);
    }

    void carry_out(const StartWorker& start) {
        must(!workers.contains(start.worker), "a worker is started twice");
        workers[start.worker] = {.function = start.function};
    }
    void carry_out(const AddMachine& add) {
        must(workers.contains(add.worker) && workers[add.worker].started, "a machine for no worker");
        must(!machines.contains(add.machine), "a machine is made twice");
        machines[add.machine] = {.worker = add.worker, .request = {}};
    }
    void carry_out(const CloseMachine& close) {
        must(machines.contains(close.machine), "a machine is closed that is gone");
        Machine& machine = machines[close.machine];
        must(machine.state == MachineState::idle || machine.state == MachineState::starting,
             "a busy machine is closed");
        machine.state = MachineState::closing;
    }
    void carry_out(const StopWorker& stop) {
        must(workers.contains(stop.worker) && !workers[stop.worker].stopped, "a worker is stopped twice");
        workers[stop.worker].stopped = true;
        for (auto& [id, machine] : machines)
            if (machine.worker == stop.worker && machine.state != MachineState::busy)
                machine.state = MachineState::closing;
    }
    void carry_out(const KillWorker& kill) {
        must(workers.contains(kill.worker) && !workers[kill.worker].killed, "a worker is killed twice");
        workers[kill.worker].killed = true;
    }
    void carry_out(const Assign& assign) {
        Request& request = requests.at(assign.request);
        must(request.state == RequestState::waiting, "a request is given to a second machine");
        must(machines.contains(assign.machine) && assign.machine != gone_,
             "a request is given to a machine that is gone");
        Machine& machine = machines[assign.machine];
        must(machine.state == MachineState::idle && !machine.request,
             "a request is given to a machine that is not clean");
        must(workers[machine.worker].function == request.function, "a request is given to another function's machine");
        must(!workers[machine.worker].stopped && !workers[machine.worker].ending,
             "a request is given to a worker that ends");
        must(machine.worker != exiting_, "a request is given to a worker that is gone");
        machine.state = MachineState::busy;
        machine.request = assign.request;
        request.state = RequestState::in_machine;
        request.machine = assign.machine;
    }
    void carry_out(const Refuse& refuse) {
        Request& request = requests.at(refuse.request);
        must(request.state == RequestState::waiting, "a request is refused that does not wait");
        must(request.function == refuse.function, "a request is refused for another function");
        request.state = RequestState::refused;
        request.refusal = refuse;
    }
    void carry_out(const Finish& finish) {
        Request& request = requests.at(finish.request);
        must(request.state == RequestState::in_machine, "a request ends that no machine has");
        const MachineId machine = *request.machine;
        if (finish.worker_died)
            must(machine == gone_ || machines[machine].worker == exiting_, "a request died with no machine");
        else
            must(machine == ready_, "a request ends before its machine is clean");
        request.state = finish.worker_died ? RequestState::died : RequestState::finished;
        machines[machine].request.reset();
    }

    std::uint64_t next_request_ = 1;
    std::optional<MachineId> ready_, gone_;
    std::optional<WorkerId> exiting_;
};

} // namespace kvmserver::request::test
