#include "src/daemon/worker_pool.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/stream_pair.hpp"

namespace kvmserver::daemon {

using namespace tinykvm;
using request::Actions;
using request::Time;

namespace {

protocol::Message request_message(const Request& request) {
    protocol::Message message;
    message.kind = protocol::Kind::request;
    message.more_follows = request.more_follows;
    if (request.stream)
        message.stream = request.at_listener ? protocol::Stream::at_listener : protocol::Stream::at_port;
    message.port = request.client_port;
    message.listen_port = request.listen_port;
    std::memcpy(message.request_id.data(), request.request_id.data(),
                std::min(request.request_id.size(), message.request_id.size()));
    if (::inet_pton(AF_INET, request.client_ip.c_str(), message.address.data()) == 1)
        message.address_bytes = 4;
    else if (::inet_pton(AF_INET6, request.client_ip.c_str(), message.address.data()) == 1)
        message.address_bytes = 16;
    return message;
}

} // namespace

std::optional<request::Problem> RequestLease::failure() const { return pool_.failure_of(*request_); }

std::string RequestLease::where_to_look() const {
    const std::string command = request::logs_command(request_->version->facts().function, request_->request_id);
    return request_->forwarded_to.empty() ? command : fmt::format("{} --remote {}", command, request_->forwarded_to);
}

WorkerPool::WorkerPool(store::Store& store, CacheService& cache, StorageService& storages, LogStore& logs,
                       Metrics& metrics, const Limits& limits, JailSettings jail, Examinations& examinations,
                       std::function<void(Request&)> finished, std::function<void(const std::string&)> report)
    : store_(store), logs_(logs), metrics_(metrics), finished_(std::move(finished)), report_(std::move(report)),
      memory_(limits.memory_reserve), epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), scheduler_(limits.max_machines), room_(protocol::kMaxInline),
      outputs_(limits.log_rate, [this](LogLine line) { logs_.add(std::move(line)); }),
      manager_(
          store, cache, storages, logs, std::move(jail), examinations,
          [this](request::WorkerId worker, std::variant<ProcessManager::Started, ProcessManager::NotStarted> result) {
              Afterwards after;
              {
                  const std::lock_guard lock(mutex_);
                  if (auto* process = std::get_if<ProcessManager::Started>(&result))
                      started(worker, std::move(*process), after);
                  else
                      start_failed(worker, std::get<ProcessManager::NotStarted>(result), after);
              }
              do_afterwards(std::move(after));
          }) {
    if (!epoll_ || !wake_)
        throw_errno("epoll");
    watch(0, wake_.get());
    if (memory_.stall_fd() >= 0)
        watch(kStall, memory_.stall_fd(), EPOLLPRI);
    watcher_ = std::thread([this] { watch_loop(); });
}

WorkerPool::~WorkerPool() {
    Afterwards after;
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
        schedule([this](Time now, Actions& out) { scheduler_.stop(now, out); }, after);
    }
    do_afterwards(std::move(after));
    manager_.end();
    wake();
    watcher_.join();
}

// Runs without the mutex: the front's threads may get the answer and destroy leases before this returns.
void WorkerPool::do_afterwards(Afterwards after) {
    for (LogLine& line : after.lines)
        logs_.add(std::move(line));
    if (!after.report.empty())
        report_(after.report);
    for (const Sending& sending : after.sendings)
        // A machine that cannot take it is ended, and its request is answered then.
        if (!protocol::send_bytes(sending.machine->channel.get(), sending.message, sending.bytes, protocol::Wait::no,
                                  sending.socket.get()))
            ::shutdown(sending.machine->channel.get(), SHUT_RDWR);
    for (Answer& answer : after.answers) {
        http::RequestWaiter& waiter = *answer.waiter;
        if (auto* reply = std::get_if<Replied>(&answer.text))
            waiter.replied(std::move(reply->bytes), reply->closing, reply->sender);
        else if (auto* problem = std::get_if<request::Problem>(&answer.text))
            waiter.failed(std::move(*problem));
        else if (auto& connected = std::get<Connected>(answer.text); connected.for_rest)
            waiter.connected_for_rest(std::move(connected.socket));
        else
            waiter.connected(std::move(connected.socket));
    }
    for (Forward& forward : after.forwards) {
        request::Circumstances of;
        of.function = std::move(forward.function);
        if (forward.moved.pending) {
            of.reason = fmt::format("{} has not confirmed yet that it has taken over", forward.moved.to);
            forward.waiter->failed(problem_for(request::Outcome::not_forwarded, of));
        } else {
            forwarder_.forward(forward.moved, std::move(forward.waiter), std::move(of));
        }
    }
    for (const auto& request : after.finished)
        finished_(*request);
    for (const Worker& worker : after.gone)
        if (worker->state && (worker->suspending || worker->forgotten))
            end_suspend(*worker);
    if (after.gone.empty())
        return;
    after.gone.clear();
    { const std::lock_guard lock(mutex_); } // whoever waits looks before or after
    gone_.notify_all();
}

// An action may append more.
void WorkerPool::carry_out(Actions& actions, Afterwards& after) {
    for (std::size_t i = 0; i < actions.size(); ++i)
        std::visit([&](const auto action) { carry_out(action, actions, after); }, actions[i]);
}

std::unique_ptr<RequestLease> WorkerPool::submit(const std::shared_ptr<FunctionVersion>& version,
                                                 const Incoming& incoming,
                                                 std::shared_ptr<http::RequestWaiter> waiter) {
    auto request = std::make_shared<Request>(version, incoming.request_id);
    request->client_ip = incoming.client_ip;
    request->opening = incoming.opening;
    request->more_follows = incoming.more_follows;
    request->route = incoming.route;
    request->stream = incoming.stream;
    request->client_port = incoming.client_port;
    request->listen_port = incoming.listen_port;
    request->at_listener = incoming.at_listener;
    Afterwards after;
    {
        const std::lock_guard lock(mutex_);
        request->id = request::RequestId{next_request_++};
        waiter->on_abandon = [this, id = request->id] { abandon(id); };
        request->waiter = std::move(waiter);
        const std::optional<store::Moved>& moved = version->facts().given->moved;
        if (moved || version->moved_) {
            forward(*request, moved ? *moved : *version->moved_, after);
        } else {
            const request::FunctionId function = function_of(version);
            request->cold = !scheduler_.ready(function);
            requests_.emplace(request->id, request);
            schedule([&](Time now, Actions& out) { scheduler_.arrive(request->id, function, now, out); }, after);
            if (version->facts().queue_ns != 0 && scheduler_.waits(request->id))
                not_later_than(now_ns() + version->facts().queue_ns);
        }
    }
    do_afterwards(std::move(after));
    return std::make_unique<RequestLease>(*this, std::move(request));
}

request::FunctionId WorkerPool::function_of(const std::shared_ptr<FunctionVersion>& version) {
    if (!version->id_) {
        const FunctionVersion::Facts& facts = version->facts();
        version->id_ = scheduler_.add({.min = facts.min,
                                       .max = facts.max,
                                       .idle_ns = facts.idle_ns,
                                       .queue = facts.queue,
                                       .queue_ns = facts.queue_ns,
                                       .kept = facts.kept,
                                       .saved = facts.suspends});
        functions_.emplace(*version->id_, version);
    }
    return *version->id_;
}

std::shared_ptr<Request> WorkerPool::take_request(request::RequestId id) {
    const auto found = requests_.find(id);
    std::shared_ptr<Request> request = std::move(found->second);
    requests_.erase(found);
    return request;
}

// The client no longer waits for the answer. Called without the mutex.
void WorkerPool::abandon(request::RequestId id) {
    std::shared_ptr<http::RequestWaiter> waiter; // destroyed after the mutex is released
    const std::lock_guard lock(mutex_);
    const auto found = requests_.find(id);
    if (found == requests_.end())
        return;
    if (scheduler_.waits(id)) {
        scheduler_.abandon(id);
        const std::shared_ptr<Request> request = take_request(id);
        request->over = true;
        waiter = std::move(request->waiter);
    } else if (const Machine machine = found->second->machine.lock(); machine && found->second->waiter) {
        // Sent under the mutex, so that it cannot follow the next request.
        protocol::Message message;
        message.kind = protocol::Kind::cancel;
        protocol::send(machine->channel.get(), message);
    }
}

void WorkerPool::carry_out(const request::StartWorker& start, Actions&, Afterwards&) {
    const std::shared_ptr<FunctionVersion>& version = functions_.at(start.function);
    starting_.emplace(start.worker, version);
    const bool first = scheduler_.live(start.function, now_ns()).starts == 0; // report the excess only once
    manager_.start(start.worker, version, next_snapshot(*version), first);
}

void WorkerPool::carry_out(const request::AddMachine& add, Actions& more, Afterwards&) {
    const Worker& worker = workers_.at(add.worker);
    try {
        auto [ours, theirs] = protocol::make_channel();
        protocol::Message message;
        message.kind = protocol::Kind::add_machine;
        if (!protocol::send(worker->process->control_fd(), message, theirs.get()))
            throw_errno("ask its process for a machine"); // usually because it is dying
        watch(static_cast<std::uint64_t>(add.machine), ours.get());
        auto machine = std::make_shared<WorkerMachine>();
        machine->id = add.machine;
        machine->worker = worker.get();
        machine->channel = std::move(ours);
        worker->machines.push_back(machine);
        machines_.emplace(add.machine, std::move(machine));
    } catch (const std::exception& error) { // such as no descriptors left: the existing machines go on
        scheduler_.machine_gone(add.machine, now_ns(), more);
        if (!worker->machines.empty())
            return;
        worker->last_words = error.what(); // unless it printed a line itself
        worker->process->kill();           // on_exit() answers the waiting requests
    }
}

void WorkerPool::carry_out(const request::CloseMachine& close, Actions&, Afterwards&) {
    ::shutdown(machines_.at(close.machine)->channel.get(), SHUT_WR); // its thread ends and closes the channel
}

// Busy machines end when they are clean: see on_ready().
void WorkerPool::carry_out(const request::StopWorker& stop, Actions&, Afterwards& after) {
    RunningWorker& worker = *workers_.at(stop.worker);
    if (const FunctionVersion::Facts& facts = worker.version->facts();
        facts.kept && !save_state(worker, after) && (worker.ready || !facts.suspends))
        note(*worker.version,
             fmt::format("{} ends, and what it kept is lost",
                         facts.machines > 1 ? fmt::format("machine {}", facts.machine) : "its machine"),
             after);
    worker.stopping = true;
    for (const Machine& machine : worker.machines)
        if (!machine->request)
            ::shutdown(machine->channel.get(), SHUT_WR);
    if (!worker.suspending)
        worker.process->stop();
}

void WorkerPool::carry_out(const request::KillWorker& kill, Actions&, Afterwards& after) {
    RunningWorker& worker = *workers_.at(kill.worker);
    worker.broken = true;
    note(*worker.version,
         worker.ready ? "its process does not end, and is killed"
                      : "its process is killed: no machine of it became ready",
         after);
    worker.process->kill();
}

void WorkerPool::carry_out(const request::Assign& assign, Actions& more, Afterwards& after) {
    const Machine& machine = machines_.at(assign.machine);
    const std::shared_ptr<Request>& request = requests_.at(assign.request);
    Sending sending{machine, request_message(*request), {}, {}};
    sending.message.others_wait = scheduler_.waiting(*request->version->id_) != 0;
    if (!request->stream && request->opening.size() <= protocol::kMaxInline) {
        sending.bytes = std::move(request->opening);
    } else { // the front sends the first bytes over a socket
        auto [ours, theirs] = stream_pair();
        if (!ours) {
            refuse(take_request(assign.request), no_socket(*request->version), after);
            return scheduler_.not_assigned(assign.machine, now_ns(), more);
        }
        sending.socket = std::move(ours);
        answer(*request, Connected{std::move(theirs)}, after);
    }
    machine->clean = false;
    machine->request = request;
    request->machine = machine;
    request->began_ns = now_ns();
    mark_output(*machine->worker); // before its program can print
    after.sendings.push_back(std::move(sending));
}

void WorkerPool::carry_out(const request::Refuse& refusal, Actions&, Afterwards& after) {
    std::shared_ptr<Request> request = take_request(refusal.request);
    const FunctionVersion& version = *request->version;
    request::Circumstances of = circumstances(version);
    of.waiting = refusal.waiting;
    of.all_busy = refusal.all_busy;
    of.waited_seconds = static_cast<double>(version.facts().queue_ns) / 1e9;
    of.reason = version.last_failure_ ? *version.last_failure_ : "";
    of.chunks_away = version.chunks_away_;
    of.failures = refusal.failures;
    of.retry_seconds = static_cast<unsigned>(refusal.retry_ns / 1'000'000'000 + 1);
    refuse(request, problem_for(refusal.why, of), after);
}

void WorkerPool::carry_out(const request::Finish& finish, Actions&, Afterwards& after) {
    const std::shared_ptr<Request> request = take_request(finish.request);
    gone_.notify_all();
    if (finish.worker_died && request->outcome == request::Outcome::ok)
        request->outcome = request::Outcome::worker_died;
    if (const Machine machine = request->machine.lock()) {
        machine->request.reset();
        if (machine->worker)
            mark_output(*machine->worker);
    }
    request->machine.reset();
    if (request->waiter) // not answered yet: the front will ask for the reason
        answer(*request, Replied{}, after);
    request->over = true;
    if (request->record)
        after.finished.push_back(request);
}

void WorkerPool::answer(Request& request, AnswerText text, Afterwards& after) {
    after.answers.push_back({std::move(request.waiter), std::move(text)});
    request.waiter = nullptr;
}

void WorkerPool::forward(Request& request, const store::Moved& moved, Afterwards& after) {
    request.over = true;
    request.forwarded_to = moved.to;
    after.forwards.push_back({std::move(request.waiter), moved, request.version->facts().function});
    request.waiter = nullptr;
}

void WorkerPool::refuse(const std::shared_ptr<Request>& request, request::Problem problem, Afterwards& after) {
    request->over = true;
    request->outcome = problem.outcome;
    answer(*request, std::move(problem), after);
}

request::Problem WorkerPool::no_socket(const FunctionVersion& version) {
    request::Circumstances of = circumstances(version);
    of.reason = std::strerror(errno);
    return problem_for(request::Outcome::no_socket, of);
}

request::Circumstances WorkerPool::circumstances(const FunctionVersion& version) {
    request::Circumstances of;
    of.function = version.facts().function;
    of.version = version.facts().name();
    return of;
}

void WorkerPool::record(const std::shared_ptr<Request>& request, AccessRecord record) {
    {
        const std::lock_guard lock(mutex_);
        request->record = std::move(record);
        if (!request->over)
            return; // reported when its machine is clean
    }
    finished_(*request);
}

std::optional<request::Problem> WorkerPool::failure_of(Request& request) {
    constexpr unsigned kMaxSaid = 4; // per request
    Afterwards after;
    std::optional<request::Problem> problem;
    {
        const std::lock_guard lock(mutex_);
        if (const Machine machine = request.machine.lock())
            receive(machine, kMaxSaid, after); // it reported the outcome before it closed the connection
        request::Circumstances of = circumstances(*request.version);
        of.request_id = request.request_id;
        if (request.outcome != request::Outcome::ok)
            problem = problem_for(request.outcome, of);
    }
    do_afterwards(std::move(after));
    return problem;
}

void WorkerPool::adopt(const std::shared_ptr<FunctionVersion>& version) {
    Afterwards after;
    {
        const std::lock_guard lock(mutex_);
        for_each_machine(version, [&](const std::shared_ptr<FunctionVersion>& machine) {
            machine->retired_ = false;
            if (machine->id_ || machine->facts().min != 0) // the scheduler need not know others before a request
                schedule([&](Time now, Actions& out) { scheduler_.adopt(function_of(machine), now, out); }, after);
        });
    }
    do_afterwards(std::move(after));
}

void WorkerPool::retire(const std::shared_ptr<FunctionVersion>& version, States states) {
    Afterwards after;
    {
        const std::lock_guard lock(mutex_);
        for_each_machine(version, [&](const std::shared_ptr<FunctionVersion>& machine) {
            machine->retired_ = true;
            schedule([&](Time now, Actions& out) { scheduler_.retire(function_of(machine), now, out); }, after);
        });
    }
    do_afterwards(std::move(after));
    if (states == States::are_forgotten)
        forget_states(version);
}

void WorkerPool::restore_from(const std::shared_ptr<FunctionVersion>& version, const Digest& snapshot) {
    const std::lock_guard lock(mutex_);
    for_each_machine(version, [&](const std::shared_ptr<FunctionVersion>& machine) {
        machine->later_snapshot_ = std::make_unique<const Digest>(snapshot);
    });
}

const Digest& WorkerPool::next_snapshot(const FunctionVersion& version) {
    return version.later_snapshot_ ? *version.later_snapshot_ : version.facts().snapshot;
}

Digest WorkerPool::snapshot_of(const FunctionVersion& version) const {
    const std::lock_guard lock(mutex_);
    return next_snapshot(version);
}

bool WorkerPool::starts_from(const Digest& snapshot) const { return manager_.starts_from(snapshot); }

bool WorkerPool::quiet() const {
    const std::lock_guard lock(mutex_);
    return scheduler_.quiet();
}

WorkerPool::Sums WorkerPool::sums() const {
    const std::lock_guard lock(mutex_);
    return {workers_.size() + manager_.unsaved().list().size(), scheduler_.machines(), given_back_};
}

std::vector<VersionLive> WorkerPool::live() const {
    using State = request::Scheduler::Live::State;
    static constexpr const char* kNames[] = {"idle", "starting", "ready", "failing"}; // indexed by State
    std::vector<VersionLive> all;
    const std::lock_guard lock(mutex_);
    for (const auto& [id, version] : functions_) {
        const request::Scheduler::Live now = scheduler_.live(id, now_ns());
        if (now.state == State::idle && now.waiting == 0 && now.in_flight == 0)
            continue;
        VersionLive& one = all.emplace_back();
        one.function = version->facts().function;
        one.version = version->facts().version;
        one.machine = version->facts().machine;
        one.suspends = version->facts().suspends;
        one.state = kNames[static_cast<unsigned>(now.state)];
        one.in_flight = now.in_flight;
        one.queued = now.waiting;
        one.starts = now.starts;
        one.last_failure = version->last_failure_ ? *version->last_failure_ : "";
        one.machines = static_cast<unsigned>(now.machines);
        one.busy = static_cast<unsigned>(now.busy);
        if (now.worker)
            one.pid = workers_.at(*now.worker)->process->pid();
    }
    for (const auto& [id, worker] : workers_)
        if (worker->stopping) {
            VersionLive& one = all.emplace_back();
            one.function = worker->version->facts().function;
            one.version = worker->version->facts().version;
            one.machine = worker->version->facts().machine;
            one.suspends = worker->version->facts().suspends;
            one.state = "stopping";
            one.pid = worker->process->pid();
            const std::size_t machines = worker->machines.size();
            one.machines =
                static_cast<unsigned>(worker->version->facts().kept ? std::min<std::size_t>(1, machines) : machines);
        }
    for (const auto& [version, pid] : manager_.unsaved().list()) {
        VersionLive& one = all.emplace_back();
        one.function = version->facts().function;
        one.version = version->facts().version;
        one.machine = version->facts().machine;
        one.suspends = true;
        one.state = "unsaved";
        one.pid = pid;
    }
    return all;
}

} // namespace kvmserver::daemon
