#include "src/daemon/process_manager.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "src/store/errors.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/same_file.hpp"

namespace kvmserver::daemon {

using namespace tinykvm;

namespace {

// Spare processes are made this long after a start, not while the first request is being answered.
constexpr std::chrono::milliseconds kQuiet{25};
constexpr std::size_t kSpares = 2;
constexpr std::uint64_t kMaxAhead = 64 << 20;
constexpr unsigned kFetchers = 4; // functions whose chunks are fetched at once
constexpr std::chrono::hours kLongestWait{1};

} // namespace

ProcessManager::ProcessManager(store::Store& store, CacheService& cache, StorageService& storages, LogStore& logs,
                               JailSettings jail, Examinations& examinations, Done done)
    : store_(store), cache_(cache), storages_(storages), logs_(logs), plans_(std::move(jail), examinations),
      done_(std::move(done)), spares_(kSpares, plans_.mode(), plans_.groups()), unsaved_(logs) {
    starter_ = std::thread([this] { start_loop(); });
    for (std::thread& thread : behind_)
        thread = std::thread([this] { behind_loop(); });
    if (!store_.bucket())
        return;
    fetchers_.emplace_back([this] { fetch_loop(Bucket::unasked); });
    for (unsigned i = 0; i < kFetchers; ++i)
        fetchers_.emplace_back([this] { fetch_loop(Bucket::asked); });
}

ProcessManager::~ProcessManager() { end(); }

void ProcessManager::start(request::WorkerId worker, std::shared_ptr<const FunctionVersion> version,
                           const Digest& snapshot, bool report_excess) {
    const std::lock_guard lock(mutex_);
    Start one{worker, std::move(version), snapshot, report_excess};
    to_start_.push(tenant_of(one), std::move(one));
    starting_from_.insert(snapshot);
    start_wanted_.notify_one();
}

bool ProcessManager::starts_from(const Digest& snapshot) const {
    const std::lock_guard lock(mutex_);
    return starting_from_.contains(snapshot);
}

void ProcessManager::set_ahead(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    ahead_bytes_ = std::min(bytes, kMaxAhead);
}

void ProcessManager::discard(std::unique_ptr<FunctionProcess> process) {
    const std::lock_guard lock(mutex_);
    discard_locked(std::move(process));
}

void ProcessManager::discard_locked(std::unique_ptr<FunctionProcess> process) {
    // Giving its memory back takes it CPU time, which others may be waiting for.
    constexpr int kNice = 10;
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(process->pid()), kNice);
    process->kill();
    discarded_.push_back(std::move(process));
    behind_wanted_.notify_one();
    start_wanted_.notify_one(); // its place among the spare processes may be free
}

void ProcessManager::add_unsaved(UnsavedState one) {
    unsaved_.add(std::move(one));
    const std::lock_guard lock(mutex_);
    behind_wanted_.notify_one();
}

void ProcessManager::end() {
    {
        const std::lock_guard lock(mutex_);
        if (ending_)
            return;
        ending_ = true;
        for (const auto& [id, one] : prepared_)
            one->process->kill(); // all at once; who destroys them waits for each
        start_wanted_.notify_all();
        behind_wanted_.notify_all();
        look_wanted_.notify_all();
        fetch_wanted_.notify_all();
        ends_.notify_all();
    }
    starter_.join();
    for (std::thread& thread : fetchers_)
        thread.join();
    for (std::thread& thread : behind_)
        thread.join();
    for (auto* const left : {&to_start_, &to_look_, &to_fetch_, &to_examine_})
        while (!left->empty())
            done_(left->pop().worker, NotStarted{"the server ends"});
    unsaved_.end();
}

void ProcessManager::start_loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
        const auto wanted = [this] { return ending_ || !to_start_.empty(); };
        if (spares_.complete()) {
            start_wanted_.wait(lock, [&] { return wanted() || !spares_.complete(); });
            if (!wanted())
                continue;
        } else if (!start_wanted_.wait_for(lock, kQuiet, wanted)) {
            const std::uint64_t ahead = ahead_bytes_;
            lock.unlock();
            spares_.add(ahead);
            lock.lock();
            continue;
        }
        if (ending_)
            return;
        Start start = to_start_.pop();
        lock.unlock();
        const bool went_on = start_unsaved(start);
        lock.lock();
        if (went_on) {
            starting_from_.extract(start.snapshot);
            continue;
        }
        if (!fetchers_.empty() && !start.fetched) {
            // A start whose chunks must come first does not hold up those behind it.
            to_look_.push(tenant_of(start), std::move(start));
            look_wanted_.notify_one();
            continue;
        }
        if (start.version->facts().suspends && !start.waited)
            start.state = claim_state(*start.version, 0);
        const bool must_wait =
            start.version->facts().suspends && !start.state && (!start.waited || unsaved_.has(*start.version));
        if (must_wait || (!start.examined && !plans_.knows(start.snapshot))) {
            to_examine_.push(tenant_of(start), std::move(start));
            behind_wanted_.notify_one();
            continue;
        }
        lock.unlock();
        done_(start.worker, started(start));
        lock.lock();
        starting_from_.extract(start.snapshot);
    }
}

// Whether its machine is in the memory of a process.
bool ProcessManager::start_unsaved(const Start& start) {
    if (start.state)
        return false;
    auto one = unsaved_.take(*start.version);
    if (!one)
        return false;
    Started out;
    out.snapshot = std::move(one->snapshot);
    out.process = std::move(one->process);
    out.state = std::move(one->state);
    out.state_bytes = one->state_bytes;
    out.unsaved = true;
    done_(start.worker, std::move(out));
    return true;
}

std::variant<ProcessManager::Started, ProcessManager::NotStarted> ProcessManager::started(Start& start) {
    const FunctionVersion::Facts& facts = start.version->facts();
    Started out;
    try {
        if (facts.suspends && !start.state)
            return NotStarted{"the state of its machine is in use by a process that does not end"};
        const UniqueFd state = start.state ? start.state->open() : UniqueFd();
        out.state = start.state;
        if (auto prepared = take_prepared(start, state.get())) {
            out.snapshot = std::move(prepared->snapshot);
            out.process = std::move(prepared->process);
            out.state_bytes = prepared->state_bytes;
            out.lingered = prepared->until.has_value();
            return out;
        }
        const UniqueFd storage =
            facts.given->storage.empty() ? UniqueFd() : storages_.admit(facts.name(), facts.given->storage);
        out.snapshot =
            start.stored ? std::move(start.stored) : std::make_unique<store::StoredSnapshot>(store_, start.snapshot);
        FunctionProgram program =
            program_of({facts, *out.snapshot, start.report_excess, start.later ? &*start.later : nullptr});
        program.state = state.get();
        program.storage = storage.get();
        if (facts.suspends)
            out.state_bytes = plans_.state_bytes_for(*out.snapshot, ceilings_from_text(facts.given->ceilings));
        out.process = process_for(program);
    } catch (const std::exception& error) {
        return NotStarted{error.what()};
    }
    return out;
}

FunctionProgram ProcessManager::program_of(const Assigned& of) {
    const FunctionVersion::Facts& facts = of.facts;
    const std::vector<Ceilings> ceilings = ceilings_from_text(facts.given->ceilings);
    return {.name = facts.name(),
            .function = facts.function,
            .snapshot = &of.snapshot,
            .after_restore = facts.given->after_restore,
            .values = facts.given->values.body,
            .environment = facts.given->values.environment,
            .ceilings = facts.given->ceilings,
            .report_excess = of.report_excess,
            .jail = plans_.plan_for(of.snapshot, ceilings),
            .limits = plans_.limits_for(of.snapshot, ceilings, facts.kept ? 1 : facts.max),
            .tenant = facts.given->tenant,
            .rest_after_ms = facts.rest_after_ms,
            .kept = facts.kept,
            .suspends = facts.suspends,
            .later = of.later};
}

std::unique_ptr<FunctionProcess> ProcessManager::process_for(const FunctionProgram& program) {
    auto process = spares_.take();
    try {
        process->assign(program, cache_);
    } catch (const HostError&) { // the spare process was killed just now
        process = spares_.take();
        process->assign(program, cache_);
    }
    return process;
}

std::unique_ptr<PreparedMachine> ProcessManager::prepare(const FunctionVersion& version, const Digest& snapshot,
                                                         int state, std::uint64_t bytes) {
    const FunctionVersion::Facts& facts = version.facts();
    if (!facts.suspends || !facts.given->storage.empty())
        return nullptr;
    auto out = std::make_unique<PreparedMachine>();
    out->state = UniqueFd(::open(fmt::format("/proc/self/fd/{}", state).c_str(), O_RDONLY | O_CLOEXEC));
    if (!out->state)
        throw_errno("open the state of a machine");
    out->snapshot = std::make_unique<store::StoredSnapshot>(store_, snapshot);
    out->ceilings = facts.given->ceilings;
    out->tenant = facts.given->tenant;
    out->state_bytes = plans_.state_bytes_for(*out->snapshot, ceilings_from_text(out->ceilings));
    FunctionProgram program = program_of({facts, *out->snapshot});
    program.state = out->state.get();
    program.state_bytes = bytes;
    program.state_grows = true;
    out->process = process_for(program);
    return out;
}

void ProcessManager::set_prepared(const FunctionVersion& version, std::unique_ptr<PreparedMachine> machine) {
    const std::string id = version.state_id();
    std::unique_ptr<PreparedMachine> before;
    {
        const std::lock_guard lock(mutex_);
        if (auto found = prepared_.extract(id))
            before = std::move(found.mapped());
        if (machine && !ending_)
            prepared_.emplace(id, std::move(machine));
        behind_wanted_.notify_one(); // it may be the first to end
    }
    if (before)
        discard(std::move(before->process));
}

bool ProcessManager::has_lingering() const {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(prepared_, [](const auto& each) { return each.second->until.has_value(); });
}

unsigned ProcessManager::end_lingering() {
    const std::lock_guard lock(mutex_);
    return end_lingering(Clock::time_point::max());
}

unsigned ProcessManager::end_lingering(Clock::time_point due) {
    return static_cast<unsigned>(std::erase_if(prepared_, [&](auto& each) {
        const bool ends = each.second->until && *each.second->until <= due;
        if (ends)
            discard_locked(std::move(each.second->process));
        return ends;
    }));
}

void ProcessManager::check_lingering() {
    const std::lock_guard lock(mutex_);
    std::erase_if(prepared_, [&](auto& each) {
        const bool too_much = each.second->process->limit_files(2 * each.second->state_bytes);
        if (too_much)
            discard_locked(std::move(each.second->process));
        return too_much;
    });
}

// The one whose state is this file, if it can be used.
std::unique_ptr<PreparedMachine> ProcessManager::take_prepared(const Start& start, int state) {
    if (!start.version->facts().suspends)
        return nullptr;
    std::unique_ptr<PreparedMachine> one;
    {
        const std::lock_guard lock(mutex_);
        if (prepared_.empty())
            return nullptr;
        if (auto found = prepared_.extract(start.version->state_id()))
            one = std::move(found.mapped());
    }
    if (!one)
        return nullptr;
    const auto& given = *start.version->facts().given;
    // One that lingers goes on as one that runs does, when its snapshot was compressed anew meanwhile.
    if (one->process->running() && (one->until || one->snapshot->digest() == start.snapshot) &&
        one->ceilings == given.ceilings && one->tenant == given.tenant && same_file(state, one->state.get()))
        return one;
    discard(std::move(one->process));
    return nullptr;
}

std::shared_ptr<store::SavedState> ProcessManager::claim_state(const FunctionVersion& version, int milliseconds) const {
    try {
        auto state = version.claim_state(store_.shared_folder(), milliseconds);
        return state ? std::make_shared<store::SavedState>(*std::move(state)) : nullptr;
    } catch (const HostError&) { // it is tried again, and then told
        return nullptr;
    }
}

// The process that has it ends, here or in a daemon that this one takes over from, or cannot save it.
void ProcessManager::wait_for_state(Start& start) {
    constexpr int kTries = 300, kTryMs = 100;
    for (int i = 0; i < kTries && !start.state && !unsaved_.can_take(*start.version); ++i)
        start.state = claim_state(*start.version, kTryMs);
}

// Two queues: with threads that may wait for the bucket, and before it with one that never does. So a service that
// hangs holds up only those that need it.
void ProcessManager::fetch_loop(Bucket bucket) {
    auto& queue = bucket == Bucket::asked ? to_fetch_ : to_look_;
    auto& wanted = bucket == Bucket::asked ? fetch_wanted_ : look_wanted_;
    std::unique_lock lock(mutex_);
    for (;;) {
        wanted.wait(lock, [&] { return ending_ || !queue.empty(); });
        if (ending_)
            return;
        Start start = queue.pop();
        lock.unlock();
        std::optional<NotStarted> failed;
        std::unique_ptr<PieceSender> sender;
        try {
            if (!start.stored)
                start.stored = std::make_unique<store::StoredSnapshot>(store_, start.snapshot);
            if (bucket == Bucket::asked)
                sender = PieceSender::begin(*start.stored);
            start.fetched = bucket == Bucket::asked || start.stored->missing().empty();
        } catch (const store::ChunksAway& error) {
            failed = NotStarted{error.what(), true};
        } catch (const std::exception& error) {
            failed = NotStarted{error.what()};
        }
        if (failed)
            done_(start.worker, *failed);
        lock.lock();
        if (failed) {
            starting_from_.extract(start.snapshot);
            continue;
        }
        const bool fetched = start.fetched;
        const Start of{start.worker, start.version, start.snapshot};
        if (sender)
            start.later = sender->take_later();
        (fetched ? to_start_ : to_fetch_).push(tenant_of(start), std::move(start));
        (fetched ? start_wanted_ : fetch_wanted_).notify_one();
        if (!sender)
            continue;
        lock.unlock();
        send_later(*sender, of);
        sender.reset(); // closes the link: nothing more comes
        lock.lock();
    }
}

void ProcessManager::send_later(PieceSender& sender, const Start& start) {
    try {
        sender.run(store::StoredSnapshot(store_, start.snapshot), [this](std::chrono::milliseconds time) {
            std::unique_lock lock(mutex_);
            return !ends_.wait_for(lock, time, [this] { return ending_; });
        });
    } catch (const std::exception& error) { // its process ends when it needs them, and the next start tells the reason
        LogLine line;
        line.function = start.version->facts().function;
        line.version = start.version->facts().version;
        line.stream = "daemon";
        line.text = fmt::format("chunks of its snapshot do not come: {}", error.what());
        logs_.add(std::move(line));
    }
}

// When there is something to do that nobody asks for.
ProcessManager::Clock::time_point ProcessManager::next_behind() const {
    auto next = Clock::now() + kLongestWait;
    if (!saving_again_ && !unsaved_.empty())
        next = std::min(next, unsaved_.next_try());
    for (const auto& [id, one] : prepared_)
        next = std::min(next, one->until.value_or(next));
    return next;
}

// A separate queue: functions whose snapshots are known do not wait for those that must be examined first.
void ProcessManager::behind_loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
        const auto wanted = [this] { return ending_ || !to_examine_.empty() || !discarded_.empty(); };
        const auto due = next_behind();
        const bool sooner = behind_wanted_.wait_until(lock, due, [&] { return wanted() || next_behind() < due; });
        if (!wanted()) {
            if (sooner || end_lingering(Clock::now()) > 0 || saving_again_ || unsaved_.empty())
                continue;
            saving_again_ = true;
            lock.unlock();
            unsaved_.save_those_due();
            lock.lock();
            saving_again_ = false;
            continue;
        }
        if (ending_)
            return;
        if (to_examine_.empty()) {
            auto process = std::move(discarded_.back());
            discarded_.pop_back();
            lock.unlock();
            process.reset(); // waits for its end
            lock.lock();
            continue;
        }
        Start start = to_examine_.pop();
        lock.unlock();
        try {
            plans_.plan_for(store::StoredSnapshot(store_, start.snapshot), {});
            if (start.version->facts().suspends && !start.state)
                wait_for_state(start);
        } catch (const std::exception&) { // the start will report the reason
        }
        start.waited = true;
        lock.lock();
        start.examined = true;
        to_start_.push(tenant_of(start), std::move(start));
        start_wanted_.notify_one();
    }
}

} // namespace kvmserver::daemon
