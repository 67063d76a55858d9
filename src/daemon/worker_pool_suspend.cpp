// Machines that keep their state are saved, and go on from there.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "src/daemon/worker_pool.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

using namespace tinykvm;
using request::Actions;
using request::Time;

namespace {
constexpr Time kLookAtState = 100'000'000; // see check_states()
constexpr std::chrono::seconds kToSave{60};
// A process that kept the files open would take so many times the disk space of a state.
constexpr std::size_t kMostFiles = 8;
} // namespace

bool WorkerPool::can_save(const RunningWorker& worker) const {
    return worker.state && (worker.ready || worker.went_on) && !worker.broken && !worker.version->retired_;
}

// Asks it to save its machine's state before it ends, or before it goes on.
bool WorkerPool::save_state(RunningWorker& worker, Afterwards& after) {
    if (!can_save(worker))
        return false;
    try {
        worker.checkpoint = bool(worker.checkpoint_done);
        if (worker.checkpoint) {
            const UniqueFd done = std::move(worker.checkpoint_done);
            worker.suspending = worker.process->checkpoint(worker.suspend_to.get(), done.get());
        } else {
            worker.suspend_to = worker.state->begin(worker.state_bytes);
            worker.suspending = worker.process->suspend(worker.suspend_to.get());
        }
        if (worker.suspending)
            watch(static_cast<std::uint64_t>(worker.id), worker.process->control_fd());
        not_later_than(now_ns() + kLookAtState);
    } catch (const HostError& error) {
        note(*worker.version, fmt::format("the state of its machine cannot be saved: {}", error.what()), after);
    }
    return worker.suspending;
}

// The next process of the machine waits for the state until `worker` is destroyed.
void WorkerPool::end_suspend(RunningWorker& worker) {
    LogLine line;
    line.function = worker.version->facts().function;
    line.version = worker.version->facts().version;
    line.stream = "daemon";
    try {
        if (worker.forgotten)
            return worker.state->forget();
        if (worker.suspended) {
            worker.state->commit();
            if (worker.process)
                linger(worker);
            if (worker.saved)
                *worker.saved = true;
            line.text = "its machine is suspended";
        } else {
            worker.state->drop();
            line.text = "the state of its machine was not saved; it goes on from the last one that was, or from its "
                        "snapshot";
        }
    } catch (const std::exception& error) {
        line.text = fmt::format("the state of its machine cannot be saved: {}", error.what());
        if (worker.suspended && worker.process)
            keep_unsaved(worker);
    }
    logs_.add(std::move(line));
}

bool WorkerPool::lingers(const RunningWorker& worker) const {
    const FunctionVersion::Facts& facts = worker.version->facts();
    // A storage is not told which of its clients wait for nothing.
    return facts.linger_ns != 0 && facts.given->storage.empty() && !ending_ && !worker.forgotten &&
           worker.process->files_given() < kMostFiles;
}

// Its process waits for the next request, which thus need not wait for a process.
void WorkerPool::linger(RunningWorker& worker) {
    worker.process->empty_earlier_files();
    const FunctionVersion::Facts& facts = worker.version->facts();
    auto one = std::make_unique<PreparedMachine>();
    one->snapshot = std::move(worker.snapshot);
    one->process = std::move(worker.process);
    one->state_bytes = worker.state_bytes;
    one->ceilings = facts.given->ceilings;
    one->tenant = facts.given->tenant;
    one->state = std::move(worker.suspend_to);
    one->until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(facts.linger_ns);
    manager_.set_prepared(*worker.version, std::move(one));
}

WorkerPool::Ending WorkerPool::ending_of(const Worker& worker) {
    if (!worker->saved)
        worker->saved = std::make_shared<std::atomic<bool>>(false);
    return {worker, worker->saved};
}

// Of what was to be suspended before. False if some of it still cannot be.
bool WorkerPool::save_unsaved(const std::shared_ptr<FunctionVersion>& version, unsigned& saved) {
    bool all = true;
    for_each_machine(version, [&](const std::shared_ptr<FunctionVersion>& machine) {
        if (!manager_.unsaved().has(*machine))
            return;
        const bool now = manager_.unsaved().save(*machine);
        saved += now;
        all = all && now;
    });
    return all;
}

UserError WorkerPool::not_saved(const std::shared_ptr<FunctionVersion>& version) {
    bool kept = false;
    for_each_machine(version, [&](const auto& machine) { kept |= manager_.unsaved().has(*machine); });
    const std::string& name = version->facts().function;
    return UserError(ExitCode::failure, fmt::format("the state of {} was not saved{}; see: kvmserver logs {}", name,
                                                    kept ? ", and stays in memory" : "", name));
}

unsigned WorkerPool::suspend(const std::shared_ptr<FunctionVersion>& version) {
    constexpr std::chrono::seconds kPatience{60};
    std::vector<Ending> ending;
    unsigned saved_now = 0;
    const bool saved_all = save_unsaved(version, saved_now);
    Afterwards after;
    {
        const std::lock_guard lock(mutex_);
        for_each_machine(version, [&](const std::shared_ptr<FunctionVersion>& machine) {
            for (const auto& [id, worker] : workers_)
                if (worker->version == machine && (worker->ready || worker->went_on) &&
                    (!worker->stopping || worker->suspending))
                    ending.push_back(ending_of(worker));
            schedule([&](Time now, Actions& out) { scheduler_.rest(function_of(machine), now, out); }, after);
        });
    }
    do_afterwards(std::move(after));
    const std::string name = version->facts().function;
    std::unique_lock lock(mutex_);
    if (!gone_.wait_for(lock, kPatience, [&] {
            return std::ranges::all_of(ending, [](const Ending& each) { return each.worker.expired(); });
        }))
        throw UserError(ExitCode::unreachable,
                        fmt::format("{} still has requests; it is suspended once they are done", name));
    if (!saved_all || !std::ranges::all_of(ending, [](const Ending& each) { return each.saved->load(); }))
        throw not_saved(version);
    return static_cast<unsigned>(ending.size()) + saved_now;
}

void WorkerPool::resume(const std::shared_ptr<FunctionVersion>& version) {
    Afterwards after;
    {
        const std::lock_guard lock(mutex_);
        for_each_machine(version, [&](const std::shared_ptr<FunctionVersion>& machine) {
            schedule([&](Time now, Actions& out) { scheduler_.wake(function_of(machine), now, out); }, after);
        });
    }
    do_afterwards(std::move(after));
}

void WorkerPool::hold(const std::shared_ptr<FunctionVersion>& version, std::chrono::milliseconds patience) {
    std::vector<Ending> saving, all;
    Afterwards after;
    {
        const std::lock_guard lock(mutex_);
        for_each_machine(version, [&](const std::shared_ptr<FunctionVersion>& machine) {
            for (const auto& [id, worker] : workers_)
                if (worker->version == machine) {
                    all.push_back(ending_of(worker));
                    if (machine->facts().suspends && (worker->ready || worker->went_on) &&
                        (!worker->stopping || worker->suspending))
                        saving.push_back(all.back());
                }
            schedule([&](Time now, Actions& out) { scheduler_.hold(function_of(machine), now, out); }, after);
        });
    }
    do_afterwards(std::move(after));
    if (!version->facts().suspends)
        return;
    const HoldEnd end = await_held(version, all, patience);
    unsigned saved_now = 0;
    if (end == HoldEnd::held && std::ranges::all_of(saving, [](const Ending& each) { return each.saved->load(); }) &&
        save_unsaved(version, saved_now))
        return;
    release(version);
    throw end == HoldEnd::has_requests ? has_requests(version, patience) : not_saved(version);
}

WorkerPool::HoldEnd WorkerPool::await_held(const std::shared_ptr<FunctionVersion>& version,
                                           const std::vector<Ending>& ending, std::chrono::milliseconds patience) {
    const auto ended = [&] {
        bool none = std::ranges::all_of(ending, [](const Ending& each) { return each.worker.expired(); });
        for_each_machine(version, [&](const auto& machine) { none &= !scheduler_.has_worker(function_of(machine)); });
        return none;
    };
    const auto answered = [&] {
        std::uint64_t requests = 0;
        for_each_machine(version, [&](const auto& machine) {
            requests += scheduler_.live(function_of(machine), now_ns()).in_flight;
        });
        return requests == 0;
    };
    std::unique_lock lock(mutex_);
    if (!gone_.wait_for(lock, patience, answered))
        return HoldEnd::has_requests;
    return gone_.wait_for(lock, kToSave, ended) ? HoldEnd::held : HoldEnd::does_not_end;
}

UserError WorkerPool::has_requests(const std::shared_ptr<FunctionVersion>& version,
                                   std::chrono::milliseconds patience) {
    return UserError(
        ExitCode::unreachable,
        fmt::format("{} still has requests after {:.3g} s; it stays: --wait SECONDS allows for longer ones",
                    version->facts().function, std::chrono::duration<double>(patience).count()));
}

Checkpoint WorkerPool::prepare_checkpoint(RunningWorker& worker) {
    UniqueFd to = worker.state->begin(worker.state_bytes);
    UniqueFd file(::fcntl(to.get(), F_DUPFD_CLOEXEC, 0));
    if (!file)
        throw_errno("open the state of a machine");
    auto [ours, theirs] = protocol::make_pair();
    worker.suspend_to = std::move(to);
    worker.checkpoint_done = std::move(theirs);
    return {worker.version->facts().machine, std::move(file), std::move(ours)};
}

std::vector<Checkpoint> WorkerPool::checkpoint(const std::shared_ptr<FunctionVersion>& version,
                                               std::chrono::milliseconds patience) {
    std::vector<Checkpoint> saving;
    std::vector<Ending> ending;
    Afterwards after;
    {
        const std::lock_guard lock(mutex_);
        for_each_machine(version, [&](const std::shared_ptr<FunctionVersion>& machine) {
            for (const auto& [id, worker] : workers_) {
                if (worker->version != machine || !can_save(*worker) || worker->stopping)
                    continue;
                try {
                    saving.push_back(prepare_checkpoint(*worker));
                    ending.push_back(ending_of(worker));
                } catch (const HostError& error) { // such as no descriptors: it is saved in hold() only
                    note(*machine, fmt::format("the state of its machine cannot be saved ahead: {}", error.what()),
                         after);
                }
            }
        });
        for_each_machine(version, [&](const std::shared_ptr<FunctionVersion>& machine) {
            if (!saving.empty())
                schedule([&](Time now, Actions& out) { scheduler_.hold(function_of(machine), now, out); }, after);
        });
    }
    do_afterwards(std::move(after));
    if (saving.empty())
        return {};
    const HoldEnd end = await_held(version, ending, patience);
    release(version);
    resume(version); // their processes have them
    if (end == HoldEnd::has_requests)
        throw has_requests(version, patience);
    return saving;
}

void WorkerPool::release(const std::shared_ptr<FunctionVersion>& version) {
    Afterwards after;
    {
        const std::lock_guard lock(mutex_);
        for_each_machine(version, [&](const std::shared_ptr<FunctionVersion>& machine) {
            if (!machine->moved_)
                schedule([&](Time now, Actions& out) { scheduler_.release(function_of(machine), now, out); }, after);
        });
    }
    do_afterwards(std::move(after));
}

void WorkerPool::forward(const std::shared_ptr<FunctionVersion>& version, const store::Moved& moved) {
    Afterwards after;
    {
        const std::lock_guard lock(mutex_);
        for_each_machine(version, [&](const std::shared_ptr<FunctionVersion>& machine) {
            machine->moved_ = std::make_unique<const store::Moved>(moved);
            manager_.set_prepared(*machine, nullptr);
            for (const request::RequestId id : scheduler_.take_waiting(function_of(machine)))
                forward(*take_request(id), moved, after);
        });
    }
    do_afterwards(std::move(after));
}

void WorkerPool::forget_states(const std::shared_ptr<FunctionVersion>& version) {
    if (version->facts().suspends)
        for_each_machine(version, [&](const std::shared_ptr<FunctionVersion>& machine) {
            manager_.unsaved().drop(*machine);
            manager_.set_prepared(*machine, nullptr);
            forget_state(*machine);
        });
}

// What the machine of a version kept that is no longer live. If a process has it, that is done when it ends.
void WorkerPool::forget_state(const FunctionVersion& version) {
    try {
        if (auto state = version.claim_state(store_.shared_folder(), 0))
            state->forget();
    } catch (const HostError&) { // it is small, and replaced by the next one
    }
}

} // namespace kvmserver::daemon
