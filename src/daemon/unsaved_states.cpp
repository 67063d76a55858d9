#include "src/daemon/unsaved_states.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "src/protocol/worker_messages.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

using namespace tinykvm;

namespace {

constexpr std::chrono::seconds kToSaveAgain{60}, kToEnd{20};
constexpr std::chrono::seconds kFirstTryAgain{10}, kLastTryAgain{600};
constexpr int kLookAtFileMs = 100;

// What a process prints while nobody reads it would fill its pipe.
void discard_output(int fd) {
    char bytes[4096];
    while (::read(fd, bytes, sizeof bytes) > 0) {
    }
}

} // namespace

void UnsavedStates::add(UnsavedState one) {
    std::string id = one.version->state_id();
    const pid_t pid = one.process->pid();
    auto entry = std::make_shared<Entry>(std::move(one), pid);
    entry->pause = kFirstTryAgain;
    entry->due = std::chrono::steady_clock::now() + kFirstTryAgain;
    const std::lock_guard lock(mutex_);
    entries_.insert_or_assign(std::move(id), std::move(entry));
}

UnsavedStates::Place UnsavedStates::find(const FunctionVersion& version) const {
    if (!version.facts().suspends)
        return nullptr;
    const std::lock_guard lock(mutex_);
    if (entries_.empty())
        return nullptr;
    const auto found = entries_.find(version.state_id());
    return found == entries_.end() ? nullptr : found->second;
}

bool UnsavedStates::is_in(const std::string& id, const Place& entry) const {
    const auto found = entries_.find(id);
    return found != entries_.end() && found->second == entry;
}

std::optional<UnsavedState> UnsavedStates::take(const FunctionVersion& version) {
    const Place entry = find(version);
    if (!entry || !entry->saving.try_lock())
        return std::nullopt;
    const std::lock_guard saving(entry->saving, std::adopt_lock);
    const std::lock_guard lock(mutex_);
    const std::string id = version.state_id();
    if (!is_in(id, entry))
        return std::nullopt; // it was saved just now
    entries_.erase(id);
    return std::move(entry->one);
}

bool UnsavedStates::can_take(const FunctionVersion& version) const {
    const Place entry = find(version);
    if (!entry || !entry->saving.try_lock())
        return false;
    entry->saving.unlock();
    return true;
}

bool UnsavedStates::has(const FunctionVersion& version) const { return find(version) != nullptr; }

bool UnsavedStates::empty() const {
    const std::lock_guard lock(mutex_);
    return entries_.empty();
}

std::vector<UnsavedStates::Listed> UnsavedStates::list() const {
    std::vector<Listed> all;
    const std::lock_guard lock(mutex_);
    for (const auto& [id, entry] : entries_)
        all.push_back({entry->one.version, entry->pid});
    return all;
}

void UnsavedStates::drop(const FunctionVersion& version) {
    const Place entry = find(version);
    if (!entry)
        return;
    {
        const std::lock_guard lock(mutex_);
        entry->dropped = true; // who saves it ends its process soon
    }
    const std::string id = version.state_id();
    const std::lock_guard saving(entry->saving);
    UnsavedState over; // destroyed without the mutex
    const std::lock_guard lock(mutex_);
    if (!is_in(id, entry))
        return;
    entries_.erase(id);
    over = std::move(entry->one);
}

bool UnsavedStates::save(const FunctionVersion& version) {
    const Place entry = find(version);
    return !entry || save(version.state_id(), entry);
}

void UnsavedStates::end() {
    save_those(Time::max(), std::chrono::steady_clock::now() + kToEnd);
    const std::lock_guard lock(mutex_);
    for (const auto& [id, entry] : entries_)
        note(*entry, "the server ends, and what its machine kept since its state was last saved is lost");
}

void UnsavedStates::save_those_due() { save_those(std::chrono::steady_clock::now(), Time::max()); }

void UnsavedStates::save_those(Time due, Time until) {
    std::map<std::string, Place> all;
    {
        const std::lock_guard lock(mutex_);
        for (const auto& each : entries_)
            if (each.second->due <= due)
                all.insert(each);
    }
    for (const auto& [id, entry] : all)
        if (std::chrono::steady_clock::now() < until && !save(id, entry)) {
            const std::lock_guard lock(mutex_);
            entry->pause = std::min(2 * entry->pause, kLastTryAgain);
            entry->due = std::chrono::steady_clock::now() + entry->pause;
        }
}

std::chrono::steady_clock::time_point UnsavedStates::next_try() const {
    auto next = std::chrono::steady_clock::now() + kLastTryAgain;
    const std::lock_guard lock(mutex_);
    for (const auto& [id, entry] : entries_)
        next = std::min(next, entry->due);
    return next;
}

bool UnsavedStates::save(const std::string& id, const Place& entry) {
    const std::lock_guard saving(entry->saving);
    {
        const std::lock_guard lock(mutex_);
        if (!is_in(id, entry))
            return true; // it was saved or taken just now
    }
    bool saved = false;
    try {
        saved = ask(*entry);
    } catch (const std::exception& error) {
        note(*entry, fmt::format("the state of its machine cannot be saved: {}", error.what()));
    }
    if (entry->one.process->running())
        return false;
    const auto dropped = [&] {
        const std::lock_guard lock(mutex_);
        return entry->dropped;
    };
    if (!saved && !dropped())
        note(*entry, "what its machine kept since its state was last saved is lost: its process has ended");
    UnsavedState over; // destroyed without the mutex
    const std::lock_guard lock(mutex_);
    entries_.erase(id);
    over = std::move(entry->one);
    return saved;
}

// Asks its process to save it, and then to end, unless it could not.
bool UnsavedStates::ask(Entry& entry) {
    UnsavedState& one = entry.one;
    const UniqueFd file = one.state->begin(one.state_bytes);
    if (!one.process->suspend(file.get()))
        throw_errno("ask its process");
    const auto until = std::chrono::steady_clock::now() + kToSaveAgain;
    pollfd fds[2] = {{one.process->pid_fd(), POLLIN, 0}, {one.process->control_fd(), POLLIN, 0}};
    bool unsaved = false;
    while (fds[0].revents == 0 && !unsaved) {
        ::poll(fds, 2, kLookAtFileMs);
        one.process->limit_files(2 * one.state_bytes);
        bool dropped = false;
        {
            const std::lock_guard lock(mutex_);
            dropped = entry.dropped;
        }
        if (dropped || std::chrono::steady_clock::now() > until)
            one.process->kill();
        if (fds[1].revents != 0 && fds[0].revents == 0) {
            bool again = false;
            const auto received = protocol::receive(one.process->control_fd(), protocol::Wait::no, &again);
            unsaved = received && received->message.kind == protocol::Kind::unsaved;
            if (received && received->message.kind == protocol::Kind::saved)
                one.process->stop();
            else if (received && !unsaved)
                one.process->kill();
            if (!unsaved && !again)
                fds[1].fd = -1; // it is ending
        }
    }
    discard_output(one.process->output_fd());
    discard_output(one.process->errors_fd());
    if (!unsaved && one.process->reap() == "exited with status 0") {
        one.state->commit();
        note(entry, "its machine is suspended");
        return true;
    }
    one.state->drop();
    return false;
}

void UnsavedStates::note(const Entry& entry, std::string text) {
    LogLine line;
    line.function = entry.one.version->facts().function;
    line.version = entry.one.version->facts().version;
    line.stream = "daemon";
    line.text = std::move(text);
    logs_.add(std::move(line));
}

} // namespace kvmserver::daemon
