// How many machines there are: more under load, none after a while without, never more than the daemon may
// have.
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>

#include "src/daemon/supervisor.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

using namespace tinykvm;

namespace {

constexpr int kLongTickMs = 1000, kShortTickMs = 20;
constexpr std::uint64_t kToGoNs = 15'000'000'000; // for a machine, or a process without any, to end

} // namespace

void Supervisor::activate(const std::shared_ptr<Target>& target) {
    if (!target->active_)
        active_.push_back(target);
    target->active_ = true;
}

// Requests wait, and no machine is free.
void Supervisor::want_capacity(const std::shared_ptr<Target>& target, Todo& todo) {
    if (target->queue_.empty() || ending_)
        return;
    const Process process = target->process_;
    if (!process) {
        if (!target->starting_ && take_budget(*target))
            start(target);
        return;
    }
    if (!process->ready)
        return; // it may be enough: requests are shorter than a start
    const auto being_made =
        static_cast<std::size_t>(std::count_if(process->slots.begin(), process->slots.end(), [](const Slot& slot) {
            return slot->state == RequestMachineSlot::State::starting;
        }));
    const bool room = process->slots.size() < target->facts().max;
    if (room && target->queue_.size() > being_made && take_budget(*target))
        add_slot(process, todo);
}

// One more machine is allowed. False: later, when another is gone; each that waits makes one go, however many
// requests it has.
bool Supervisor::take_budget(Target& target) {
    if (max_machines_ == 0 || machines_ < max_machines_) {
        ++machines_;
        return true;
    }
    if (!target.starved_) {
        target.starved_ = true;
        starved_.push_back(target.weak_from_this());
        evict_one();
    }
    return false;
}

// The machine that has been idle for longest goes, whosesoever it is.
bool Supervisor::evict_one() {
    Slot oldest;
    for (const Process& process : processes_) {
        if (process->stopping || (process->slots.size() <= process->target->facts().min && !process->target->retired_))
            continue;
        for (const Slot& slot : process->slots)
            if (slot->state == RequestMachineSlot::State::idle &&
                (!oldest || slot->last_used_ns < oldest->last_used_ns))
                oldest = slot;
    }
    if (oldest)
        close_slot(oldest);
    return oldest != nullptr;
}

// Those that have been told to: what waits will have their places.
std::size_t Supervisor::machines_that_go() const {
    std::size_t count = 0;
    for (const Process& process : processes_)
        count +=
            static_cast<std::size_t>(std::count_if(process->slots.begin(), process->slots.end(), [](const Slot& slot) {
                return slot->state == RequestMachineSlot::State::closing && slot->channel;
            }));
    return count;
}

void Supervisor::serve_starved(Todo& todo) {
    while (!starved_.empty() && machines_ < max_machines_ && !ending_) {
        const auto target = starved_.front().lock();
        starved_.pop_front();
        if (!target)
            continue;
        target->starved_ = false;
        drop_abandoned(*target);
        want_capacity(target, todo);
    }
}

// The budget has been taken; it is given back when there will be none. "": it is being made; else why not.
std::string Supervisor::add_slot(const Process& process, Todo&) {
    auto slot = std::make_shared<RequestMachineSlot>();
    slot->process = process;
    slot->id = next_id_++;
    slot->last_used_ns = now_ns();
    try {
        auto [ours, theirs] = link::make_pair();
        link::Message message;
        message.kind = link::Kind::add_machine;
        if (!link::send(process->process->control_fd(), message, theirs.get()))
            throw_errno("ask its process for a machine"); // it is dying, mostly
        slot->channel = std::move(ours);
        watch(slot->id, slot->channel.get());
    } catch (const std::exception& error) { // no descriptors, say: the machines that there are go on
        --machines_;
        return error.what();
    }
    watched_[slot->id] = {Watched::Kind::channel, slot, process};
    process->slots.push_back(slot);
    return {};
}

// Its thread ends and closes the channel: then it is gone. Only for one without a request.
void Supervisor::close_slot(const Slot& slot) {
    slot->state = RequestMachineSlot::State::closing;
    slot->closing_ns = now_ns();
    ::shutdown(slot->channel.get(), SHUT_WR);
    const Process process = slot->process.lock();
    if (process && std::all_of(process->slots.begin(), process->slots.end(),
                               [](const Slot& s) { return s->state == RequestMachineSlot::State::closing; }))
        stop_process(process);
}

void Supervisor::stop_process(Process process) {
    if (process->stopping)
        return;
    process->stopping = true;
    if (process->target->process_ == process)
        process->target->process_.reset(); // the next request starts another
    for (const Slot& slot : process->slots) {
        if (slot->channel && slot->state != RequestMachineSlot::State::busy &&
            slot->state != RequestMachineSlot::State::closing) {
            slot->state = RequestMachineSlot::State::closing;
            slot->closing_ns = now_ns();
        }
        if (slot->channel)
            ::shutdown(slot->channel.get(), SHUT_WR); // a busy one ends after its request
    }
    process->process->stop();
}

// A version without routes goes when it has finished what it has.
void Supervisor::maybe_end(Target& target) {
    if (target.retired_ && target.queue_.empty() && target.in_flight_ == 0 && target.process_)
        stop_process(target.process_);
}

void Supervisor::keep_minimum(const std::shared_ptr<Target>& target, Todo& todo) {
    const unsigned min = target->facts().min;
    if (min == 0 || target->retired_ || ending_)
        return;
    activate(target);
    const Process process = target->process_;
    if (!process) {
        if (!target->starting_ && now_ns() >= target->retry_at_ns_ &&
            (max_machines_ == 0 || machines_ < max_machines_)) {
            ++machines_;
            start(target);
        }
        return;
    }
    while (process->ready && process->slots.size() < min && (max_machines_ == 0 || machines_ < max_machines_)) {
        ++machines_;
        if (!add_slot(process, todo).empty())
            return;
    }
}

void Supervisor::expire_queue(Target& target, std::uint64_t now, std::uint64_t& next, Todo& todo) {
    drop_abandoned(target);
    while (!target.queue_.empty()) {
        Waiting& oldest = target.queue_.front();
        if (oldest.deadline_ns == 0 || oldest.deadline_ns > now) {
            if (oldest.deadline_ns != 0)
                next = std::min(next, oldest.deadline_ns);
            return;
        }
        request::Circumstances of = circumstances(target);
        of.waited_seconds = static_cast<double>(target.facts().queue_ns) / 1e9;
        reject(std::move(oldest), problem_for(request::Outcome::queue_timeout, of), todo);
        target.queue_.pop_front();
    }
}

void Supervisor::give_up_idle(Target& target, std::uint64_t now) {
    const Process process = target.process_;
    if (!process || !process->ready || !target.queue_.empty())
        return;
    const unsigned min = target.retired_ ? 0 : target.facts().min;
    if (min == 0 && target.in_flight_ == 0 && now >= target.last_used_ns_ + target.facts().idle_ns)
        return stop_process(process);
    // Machines beyond what the load needs now.
    auto left = process->slots.size();
    for (const Slot& slot : std::list<Slot>(process->slots))
        if (left > std::max(1u, min) && slot->state == RequestMachineSlot::State::idle &&
            now >= slot->last_used_ns + target.facts().idle_ns) {
            close_slot(slot);
            --left;
        }
}

// A machine that was told to go counts until it is gone: one that stays would keep its place from others.
void Supervisor::kill_stuck(std::uint64_t now, Todo& todo) {
    for (const Process& process : processes_) {
        if (!process->slots.empty())
            process->empty_ns = 0;
        else if (process->empty_ns == 0)
            process->empty_ns = now;
        const bool stays = std::any_of(process->slots.begin(), process->slots.end(), [&](const Slot& slot) {
            return slot->state == RequestMachineSlot::State::closing && now >= slot->closing_ns + kToGoNs;
        });
        const bool lingers = process->empty_ns != 0 && now >= process->empty_ns + kToGoNs;
        if ((!stays && !lingers) || process->broken)
            continue;
        process->broken = true;
        note(*process->target, "its process does not end, and is killed", todo);
        process->process->kill();
    }
}

// Milliseconds until the next look.
int Supervisor::tick(Todo& todo) {
    const std::uint64_t now = now_ns();
    std::uint64_t next = now + std::uint64_t{kLongTickMs} * 1'000'000;
    bool waiting = false;
    kill_stuck(now, todo);
    for (std::size_t i = 0; i < active_.size(); ++i) {
        const auto target = active_[i];
        expire_queue(*target, now, next, todo);
        give_up_idle(*target, now);
        if (!target->process_ && !target->starting_ && target->failures_ != 0) {
            if (now >= target->retry_at_ns_)
                keep_minimum(target, todo);
            else
                next = std::min(next, target->retry_at_ns_);
        } else {
            keep_minimum(target, todo);
        }
        waiting |= !target->queue_.empty();
        if (target->process_ && target->facts().idle_ns != 0)
            next = std::min(next, std::max(now + std::uint64_t{kShortTickMs} * 1'000'000,
                                           target->last_used_ns_ + target->facts().idle_ns));
    }
    std::erase_if(active_, [](const auto& target) {
        const bool rests = !target->process_ && !target->starting_ && target->queue_.empty() &&
                           target->in_flight_ == 0 && (target->retired_ || target->facts().min == 0) &&
                           (target->failures_ == 0 || target->retired_ || now_ns() >= target->retry_at_ns_);
        if (rests)
            target->active_ = false;
        return rests;
    });
    ticking_ = waiting;
    if (waiting)
        next = std::min(next, now + std::uint64_t{kShortTickMs} * 1'000'000);
    return static_cast<int>((next - std::min(next, now)) / 1'000'000) + 1;
}

} // namespace kvmserver::daemon
