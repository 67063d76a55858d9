// Starting the processes of functions, on a thread of its own: hot functions do not wait for cold ones.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "src/daemon/spare_processes.hpp"
#include "src/daemon/supervisor.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

using namespace tinykvm;

namespace {

constexpr std::uint64_t kFirstBackoffNs = 200'000'000, kLongestBackoffNs = 30'000'000'000;
// So long after a start the next one is made ready: not while the first request is being answered.
constexpr std::chrono::milliseconds kQuiet{25};
constexpr std::size_t kSpares = 2;

} // namespace

// The budget for its first machine has been taken.
void Supervisor::start(const std::shared_ptr<Target>& target) {
    target->starting_ = true;
    activate(target);
    to_start_.push_back({target});
    start_wanted_.notify_one();
}

void Supervisor::start_loop() {
    SpareProcesses spares(kSpares, plans_.mode(), plans_.groups());
    std::unique_lock lock(mutex_);
    for (;;) {
        const auto wanted = [this] { return ending_ || !to_start_.empty(); };
        if (spares.complete()) {
            start_wanted_.wait(lock, wanted);
        } else if (!start_wanted_.wait_for(lock, kQuiet, wanted)) {
            const std::uint64_t ahead = hot_bytes_;
            lock.unlock();
            spares.add(ahead);
            lock.lock();
            continue;
        }
        if (ending_)
            return;
        const auto [target, examined] = to_start_.front();
        to_start_.pop_front();
        if (!examined && !plans_.knows(target->facts().snapshot)) {
            to_examine_.push_back({target});
            examination_wanted_.notify_one();
            continue;
        }
        const bool tell_excess = target->starts_ == 0; // once is enough
        lock.unlock();

        const Target::Facts& facts = target->facts();
        auto process = std::make_shared<RunningProcess>();
        process->target = target;
        std::string failed;
        try {
            process->snapshot = std::make_unique<store::StoredSnapshot>(store_, facts.snapshot);
            const std::vector<Ceilings> ceilings = ceilings_from_text(facts.ceilings);
            const FunctionProgram program{.name = facts.name,
                                          .function = facts.function,
                                          .snapshot = process->snapshot.get(),
                                          .after_restore = facts.after_restore,
                                          .values = facts.values.body,
                                          .environment = facts.values.environment,
                                          .ceilings = facts.ceilings,
                                          .tell_excess = tell_excess,
                                          .jail = plans_.plan_for(*process->snapshot, ceilings),
                                          .limits = plans_.limits_for(*process->snapshot, ceilings, facts.max),
                                          .tenant = facts.tenant};
            process->process = spares.take();
            try {
                process->process->assign(program, cache_);
            } catch (const HostError&) { // a spare one that was killed this moment
                process->process = spares.take();
                process->process->assign(program, cache_);
            }
        } catch (const std::exception& error) {
            failed = error.what();
        }
        Todo todo;
        lock.lock();
        target->starting_ = false;
        if (failed.empty()) {
            started(target, std::move(process), todo);
        } else {
            --machines_;
            start_failed(*target, failed, todo);
        }
        lock.unlock();
        carry_out(std::move(todo));
        lock.lock();
    }
}

// Functions whose snapshots are known do not wait for those whose are not.
void Supervisor::examine_loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
        examination_wanted_.wait(lock, [this] { return ending_ || !to_examine_.empty(); });
        if (ending_)
            return;
        const auto target = to_examine_.front().target;
        to_examine_.pop_front();
        lock.unlock();
        try {
            plans_.plan_for(store::StoredSnapshot(store_, target->facts().snapshot), {});
        } catch (const std::exception&) { // its start will say why
        }
        lock.lock();
        to_start_.push_back({target, true});
        start_wanted_.notify_one();
    }
}

// The budget for its first machine has been taken.
void Supervisor::started(const std::shared_ptr<Target>& target, Process process, Todo& todo) {
    ++target->starts_;
    target->last_used_ns_ = process->started_ns = now_ns();
    process->id = next_id_++;
    processes_.push_back(process);
    target->process_ = process;
    try {
        watched_[process->id] = {Watched::Kind::exit, {}, process};
        watch(process->id, process->process->pid_fd());
        process->output = outputs_.add(target->facts().function, target->facts().version, process->process->output_fd(),
                                       process->process->errors_fd());
    } catch (const std::exception& error) {
        --machines_;
        forget(process, todo);
        return start_failed(*target, error.what(), todo);
    }
    if (std::string why = add_slot(process, todo); !why.empty()) {
        process->last_words = std::move(why); // unless it said something itself
        process->process->kill();             // on_exit() tells who waits
        return;
    }
    if (ending_)
        stop_process(process);
    maybe_end(*target);
}

// It never was ready: who waits is told, and the next try comes later.
void Supervisor::start_failed(Target& target, const std::string& why, Todo& todo) {
    count_failure(target, why);
    note(target, fmt::format("cannot be restored: {}", why), todo);
    request::Circumstances of = circumstances(target);
    of.reason = why;
    reject_all(target, problem_for(request::Outcome::not_restored, of), todo);
    serve_starved(todo);
}

void Supervisor::count_failure(Target& target, std::string why) {
    target.last_failure_ = std::move(why);
    // The first is made good at once.
    if (++target.failures_ == 1)
        target.retry_at_ns_ = now_ns();
    else
        target.retry_at_ns_ =
            now_ns() + std::min(kLongestBackoffNs, kFirstBackoffNs << std::min(10u, target.failures_ - 2));
}

} // namespace kvmserver::daemon
