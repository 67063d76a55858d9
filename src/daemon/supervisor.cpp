#include "src/daemon/supervisor.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

using namespace tinykvm;

namespace {

link::Message request_message(const std::string& id, const std::string& client_ip) {
    link::Message message;
    message.kind = link::Kind::request;
    std::memcpy(message.request_id.data(), id.data(), std::min(id.size(), message.request_id.size()));
    if (::inet_pton(AF_INET, client_ip.c_str(), message.address.data()) == 1)
        message.address_bytes = 4;
    else if (::inet_pton(AF_INET6, client_ip.c_str(), message.address.data()) == 1)
        message.address_bytes = 16;
    return message;
}

} // namespace

std::uint64_t now_ns() {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

std::optional<request::Problem> JobLease::failure() const { return supervisor_.failure_of(*job_); }

Supervisor::Supervisor(store::Store& store, CacheService& cache, LogStore& logs, Metrics& metrics,
                       std::uint64_t max_machines, std::uint64_t log_rate, JailSettings jail,
                       Examinations& examinations, std::function<void(const Job&)> finished)
    : store_(store), cache_(cache), logs_(logs), metrics_(metrics), max_machines_(max_machines),
      plans_(std::move(jail), examinations), finished_(std::move(finished)), epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      outputs_(log_rate, [this](LogLine line) { logs_.add(std::move(line)); }) {
    if (!epoll_ || !wake_)
        throw_errno("epoll");
    watch(0, wake_.get());
    starter_ = std::thread([this] { start_loop(); });
    for (std::thread& examiner : examiners_)
        examiner = std::thread([this] { examine_loop(); });
    watcher_ = std::thread([this] { watch_loop(); });
}

Supervisor::~Supervisor() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
        for (const Process& process : std::vector<Process>(processes_))
            stop_process(process);
        start_wanted_.notify_all();
        examination_wanted_.notify_all();
        wake();
    }
    starter_.join();
    for (std::thread& examiner : examiners_)
        examiner.join();
    watcher_.join();
}

// A front's threads may get the answer before this returns, and destroy leases within it: hence without the
// mutex.
void Supervisor::carry_out(Todo todo) {
    for (LogLine& line : todo.lines)
        logs_.add(std::move(line));
    for (Delivery& delivery : todo.deliveries) {
        auto lease = std::make_unique<JobLease>(*this, delivery.job);
        if (delivery.problem)
            delivery.waiter->failed(std::move(*delivery.problem), std::move(lease));
        else
            delivery.waiter->connected(std::move(delivery.socket), std::move(lease));
    }
    for (const auto& job : todo.finished)
        finished_(*job);
}

void Supervisor::submit(const std::shared_ptr<Target>& target, std::string_view request_id, std::string_view client_ip,
                        std::shared_ptr<http::Waiter> waiter) {
    Todo todo;
    {
        const std::lock_guard lock(mutex_);
        const std::uint64_t now = now_ns();
        const Target::Facts& facts = target->facts();
        Waiting waiting{std::make_shared<Job>(target, request_id), std::move(waiter), std::string(client_ip), now,
                        facts.queue_ns ? now + facts.queue_ns : 0};
        target->last_used_ns_ = now;
        const Process& process = target->process_;
        waiting.job->cold = !process || !process->ready;
        Slot idle; // the one that was used last: its memory is warm
        if (process)
            for (const Slot& slot : process->slots)
                if (slot->state == RequestMachineSlot::State::idle &&
                    (!idle || slot->last_used_ns > idle->last_used_ns))
                    idle = slot;
        if (idle && target->queue_.empty()) {
            dispatch(idle, std::move(waiting), todo);
        } else if (!process && !target->starting_ && now < target->retry_at_ns_) {
            reject(std::move(waiting), failing_problem(*target), todo);
        } else {
            drop_abandoned(*target);
            // Whoever waits only for a first machine does not count: a queue of 0 is for those who would
            // rather be refused than wait.
            const bool none_free =
                process && process->ready && target->queue_.size() >= facts.queue && target->in_flight_ >= facts.max;
            if (none_free || target->queue_.size() >= std::max(facts.queue, facts.max)) {
                request::Circumstances of = circumstances(*target);
                of.waiting = target->queue_.size();
                of.queue_counts_max = none_free;
                reject(std::move(waiting), problem_for(request::Outcome::queue_full, of), todo);
            } else {
                target->queue_.push_back(std::move(waiting));
                activate(target);
                want_capacity(target, todo);
                if (!ticking_)
                    wake();
            }
        }
    }
    carry_out(std::move(todo));
}

// The program of an idle machine gets a connection of its own for this request.
void Supervisor::dispatch(const Slot& slot, Waiting waiting, Todo& todo) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
        const int error = errno;
        slot->state = RequestMachineSlot::State::idle;
        request::Circumstances of;
        of.reason = std::strerror(error);
        return reject(std::move(waiting), problem_for(request::Outcome::no_socket, of), todo);
    }
    const UniqueFd theirs(pair[0]);
    UniqueFd ours(pair[1]);
    Target& target = *waiting.job->target;
    const std::uint64_t now = now_ns();
    slot->state = RequestMachineSlot::State::busy;
    slot->job = waiting.job;
    if (const Process process = slot->process.lock())
        mark_output(*process); // before its program can print
    // Should this fail, the machine is gone: the front sees the end of the connection and asks why.
    if (!link::send(slot->channel.get(), request_message(waiting.job->request_id, waiting.client_ip), theirs.get()))
        waiting.job->outcome = request::Outcome::worker_died;
    slot->last_used_ns = target.last_used_ns_ = now;
    waiting.job->slot = slot;
    ++target.in_flight_;
    todo.deliveries.push_back({std::move(waiting.waiter), std::move(waiting.job), std::move(ours), std::nullopt});
}

// The next request of the machine's function that somebody still waits for. False: it got none, and none
// waits.
bool Supervisor::dispatch_next(const Slot& slot, Todo& todo) {
    Target& target = *slot->process.lock()->target;
    drop_abandoned(target);
    // One that gets no connection is refused: then the machine is for the next.
    while (slot->state == RequestMachineSlot::State::idle && !target.queue_.empty()) {
        Waiting next = std::move(target.queue_.front());
        target.queue_.pop_front();
        dispatch(slot, std::move(next), todo);
    }
    return slot->state == RequestMachineSlot::State::busy;
}

void Supervisor::drop_abandoned(Target& target) {
    std::erase_if(target.queue_, [](const Waiting& waiting) { return waiting.waiter->abandoned(); });
}

void Supervisor::reject(Waiting waiting, request::Problem problem, Todo& todo) {
    waiting.job->over = true;
    waiting.job->outcome = problem.outcome;
    todo.deliveries.push_back({std::move(waiting.waiter), std::move(waiting.job), {}, std::move(problem)});
}

void Supervisor::reject_all(Target& target, const request::Problem& problem, Todo& todo) {
    for (Waiting& waiting : target.queue_)
        reject(std::move(waiting), problem, todo);
    target.queue_.clear();
}

request::Circumstances Supervisor::circumstances(const Target& target) {
    request::Circumstances of;
    of.function = target.facts().function;
    of.version = target.facts().name;
    return of;
}

request::Problem Supervisor::failing_problem(const Target& target) const {
    const std::uint64_t now = now_ns();
    const auto seconds =
        target.retry_at_ns_ > now ? static_cast<unsigned>((target.retry_at_ns_ - now) / 1'000'000'000 + 1) : 1;
    request::Circumstances of = circumstances(target);
    of.failures = target.failures_;
    of.reason = target.last_failure_;
    of.retry_seconds = seconds;
    return problem_for(request::Outcome::function_failing, of);
}

void Supervisor::finish(const std::shared_ptr<Job>& job, Todo& todo) {
    if (job->over)
        return;
    job->over = true;
    --job->target->in_flight_;
    if (job->record)
        todo.finished.push_back(job);
}

void Supervisor::record(const std::shared_ptr<Job>& job, AccessRecord record) {
    {
        const std::lock_guard lock(mutex_);
        job->record = std::move(record);
        if (!job->over)
            return; // when its machine is clean
    }
    finished_(*job);
}

std::optional<request::Problem> Supervisor::failure_of(Job& job) {
    Todo todo;
    std::optional<request::Problem> problem;
    {
        const std::lock_guard lock(mutex_);
        if (const Slot slot = job.slot.lock(); slot && slot->job.get() == &job)
            drain(slot, todo); // it told before it closed the connection
        if (job.outcome != request::Outcome::ok)
            problem = problem_for(job.outcome, circumstances(*job.target));
    }
    carry_out(std::move(todo));
    return problem;
}

void Supervisor::adopt(const std::shared_ptr<Target>& target) {
    Todo todo;
    {
        const std::lock_guard lock(mutex_);
        target->retired_ = false;
        keep_minimum(target, todo);
    }
    carry_out(std::move(todo));
}

void Supervisor::retire(const std::shared_ptr<Target>& target) {
    const std::lock_guard lock(mutex_);
    target->retired_ = true;
    maybe_end(*target);
}

bool Supervisor::quiet() const {
    const std::lock_guard lock(mutex_);
    return std::none_of(active_.begin(), active_.end(),
                        [](const auto& target) { return target->in_flight_ != 0 || !target->queue_.empty(); });
}

Supervisor::Sums Supervisor::sums() const {
    const std::lock_guard lock(mutex_);
    return {processes_.size(), machines_};
}

std::vector<VersionLive> Supervisor::live() const {
    std::vector<VersionLive> all;
    const std::lock_guard lock(mutex_);
    for (const auto& target : active_) {
        VersionLive& one = all.emplace_back();
        one.function = target->facts().function;
        one.version = target->facts().version;
        one.in_flight = target->in_flight_;
        one.queued = target->queue_.size();
        one.starts = target->starts_;
        one.last_failure = target->last_failure_;
        if (const Process& process = target->process_) {
            one.state = process->ready ? "ready" : "starting";
            one.pid = process->process->pid();
            one.machines = static_cast<unsigned>(process->slots.size());
            one.busy =
                static_cast<unsigned>(std::count_if(process->slots.begin(), process->slots.end(), [](const Slot& slot) {
                    return slot->state == RequestMachineSlot::State::busy;
                }));
        } else {
            one.state = target->starting_ ? "starting" : now_ns() < target->retry_at_ns_ ? "failing" : "idle";
        }
    }
    for (const Process& process : processes_)
        if (process->stopping) {
            VersionLive& one = all.emplace_back();
            one.function = process->target->facts().function;
            one.version = process->target->facts().version;
            one.state = "stopping";
            one.pid = process->process->pid();
            one.machines = static_cast<unsigned>(process->slots.size());
        }
    return all;
}

} // namespace kvmserver::daemon
