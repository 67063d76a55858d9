// The daemon's part of a migration: the side that a function leaves, and the states of its machines on both sides.
#include <fmt/format.h>
#include <poll.h>

#include <chrono>

#include "src/daemon/service.hpp"
#include "src/protocol/worker_messages.hpp"
#include "src/store/errors.hpp"

namespace kvmserver::daemon {

std::shared_ptr<FunctionVersion> Service::only_live(const std::string& function, std::uint64_t version) const {
    const auto versions = table_.live(function);
    if (!versions)
        throw store::NotFound(fmt::format("there is no function {}", function));
    if (versions->size() != 1 || versions->front()->facts().version != version)
        throw store::Conflict(fmt::format("v{} of {} has not all requests any more", version, function));
    return versions->front();
}

void Service::hold(const std::string& function, std::uint64_t version, std::chrono::milliseconds patience) {
    const auto one = only_live(function, version);
    pool_.hold(one, patience);
    const std::lock_guard lock(held_mutex_);
    held_[function] = one;
}

std::optional<std::uint64_t> Checkpoint::wait() const {
    constexpr int kPatienceMs = 60'000;
    pollfd told{done.get(), POLLIN, 0};
    if (::poll(&told, 1, kPatienceMs) <= 0)
        return std::nullopt;
    const auto received = protocol::receive(done.get(), protocol::Wait::no);
    if (!received || received->message.kind != protocol::Kind::checkpoint)
        return std::nullopt;
    return received->message.state_bytes;
}

std::vector<Checkpoint> Service::checkpoint(const std::string& function, std::uint64_t version,
                                            std::chrono::milliseconds patience) {
    return pool_.checkpoint(only_live(function, version), patience);
}

std::shared_ptr<FunctionVersion> Service::elsewhere(const Destination& destination) const {
    if (destination.shares.size() != 1 || !destination.shares.front().version)
        return nullptr;
    auto version = destination.shares.front().version; // the other daemon chooses among its machines
    const auto& moved = version->facts().given->moved;
    if (!moved)
        return nullptr;
    // Until it is known whether the other daemon has taken it over, requests wait, as those before them.
    auto waits = moved->pending ? held(destination.function) : nullptr;
    return waits ? std::move(waits) : std::move(version);
}

request::Problem Service::back_to_here(const std::string& function, const store::Moved& moved) {
    request::Circumstances of;
    of.function = function;
    of.reason = fmt::format("{} forwards it back to here", moved.forward);
    return problem_for(request::Outcome::not_forwarded, of);
}

std::shared_ptr<FunctionVersion> Service::held(const std::string& function) const {
    const std::lock_guard lock(held_mutex_);
    const auto found = held_.find(function);
    return found == held_.end() ? nullptr : found->second;
}

void Service::release(const std::string& function) {
    std::shared_ptr<FunctionVersion> left;
    {
        const std::lock_guard lock(held_mutex_);
        if (const auto found = held_.extract(function))
            left = found.mapped();
    }
    if (left)
        pool_.release(left);
}

void Service::forward(const std::string& function, const store::Moved& moved) {
    if (const auto left = held(function)) // which the table has no longer, or not much longer
        pool_.forward(left, moved);
    refresh();
}

unsigned Service::states(const std::string& function, std::uint64_t version) {
    const FunctionVersion::Facts facts = table_.described(function, version)->facts();
    return facts.suspends ? facts.machines : 0;
}

namespace {
std::shared_ptr<const FunctionVersion> machine_of(std::shared_ptr<const FunctionVersion> first, unsigned machine) {
    if (machine == 0 || machine > first->facts().machines || !first->facts().suspends)
        throw store::NotFound(fmt::format("{} v{} has no machine {} whose state is saved", first->facts().function,
                                          first->facts().version, machine));
    return machine == 1 ? std::move(first) : first->others()[machine - 2];
}
} // namespace

store::SavedState Service::saved_state(const std::string& function, std::uint64_t version, unsigned machine) {
    constexpr int kPatienceMs = 5000; // for a process that ends
    const auto one = machine_of(table_.described(function, version), machine);
    auto state = one->claim_state(store_.shared_folder(), kPatienceMs);
    if (!state)
        throw store::Conflict(fmt::format("a process has the state of {}", one->facts().name()));
    return *std::move(state);
}

std::unique_ptr<PreparedMachine> Service::prepare(const std::string& function, std::uint64_t version, unsigned machine,
                                                  int state, std::uint64_t bytes) {
    const auto one = machine_of(table_.described(function, version), machine);
    return pool_.processes().prepare(*one, pool_.snapshot_of(*one), state, bytes);
}

void Service::set_prepared(const std::string& function, std::uint64_t version, unsigned machine,
                           std::unique_ptr<PreparedMachine> prepared) {
    pool_.processes().set_prepared(*machine_of(table_.described(function, version), machine), std::move(prepared));
}

} // namespace kvmserver::daemon
