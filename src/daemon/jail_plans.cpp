#include "src/daemon/jail_plans.hpp"

#include <optional>
#include <utility>

#include "src/jail/plan_of.hpp"

namespace kvmserver::daemon {

namespace {

// Follows Policy (tinykvm/linux): without a ceiling on paths there is no bound.
std::optional<jail::Bound> bound_of(const tinykvm::Granted& granted) {
    if (!granted.read && !granted.write)
        return std::nullopt;
    jail::Bound bound;
    if (!granted.read)
        bound.push_back({"/", false});
    for (const std::string& path : granted.read.value_or(std::vector<std::string>()))
        bound.push_back({path, false});
    for (const std::string& path : granted.write.value_or(std::vector<std::string>()))
        bound.push_back({path, true});
    for (const tinykvm::Volume& volume : granted.volumes.value_or(std::vector<tinykvm::Volume>()))
        bound.push_back({volume.host, volume.write});
    for (const tinykvm::NetGrant& grant : granted.listen.value_or(std::vector<tinykvm::NetGrant>()))
        if (grant.kind == tinykvm::NetGrant::Kind::unix_path)
            bound.push_back({grant.name, true});
    return bound;
}

void cut_down(jail::Plan& plan, const std::vector<Ceilings>& all) {
    plan.bounds.clear(); // bounds never come from the snapshot
    for (const Ceilings& each : all) {
        const tinykvm::Granted granted = granted_by(each);
        if (auto bound = bound_of(granted))
            plan.bounds.push_back(*std::move(bound));
        if (granted.connect && granted.connect->empty())
            plan.network = plan.connect = false;
    }
}

} // namespace

bool JailPlans::knows(const Digest& digest) {
    const bool not_needed = settings_.mode == jail::Mode::off && !(settings_.groups && settings_.groups->usable());
    return not_needed || examinations_.knows(digest);
}

std::optional<tinykvm::Limits> JailPlans::machine_limits(const store::StoredSnapshot& snapshot,
                                                         const std::vector<Ceilings>& ceilings) {
    const auto facts = examinations_.of_stored(snapshot);
    if (!facts) // its process will report the reason
        return std::nullopt;
    tinykvm::Limits limits = facts->limits;
    for (const Ceilings& each : ceilings)
        limits = limited_by(limits, each);
    return limits;
}

GroupLimits JailPlans::limits_for(const store::StoredSnapshot& snapshot, const std::vector<Ceilings>& ceilings,
                                  unsigned machines) {
    if (!settings_.groups || !settings_.groups->usable())
        return {};
    const auto limits = machine_limits(snapshot, ceilings);
    return limits ? limits_of_process(limits->memory, limits->request_memory, machines) : GroupLimits{};
}

std::uint64_t JailPlans::state_bytes_for(const store::StoredSnapshot& snapshot, const std::vector<Ceilings>& ceilings) {
    constexpr std::uint64_t kBesideMemory = 64 << 20; // what describes it
    const auto limits = machine_limits(snapshot, ceilings);
    return kBesideMemory + (limits ? limits->memory : 0);
}

std::string JailPlans::plan_for(const store::StoredSnapshot& snapshot, const std::vector<Ceilings>& ceilings) {
    jail::Plan plan;
    if (settings_.mode != jail::Mode::off)
        if (const auto facts = examinations_.of_stored(snapshot))
            plan = jail::plan_of(facts->permissions, facts->cwd);
    // These never come from the snapshot.
    plan.mode = settings_.mode;
    plan.hidden = settings_.hidden;
    cut_down(plan, ceilings);
    return jail::to_text(plan);
}

} // namespace kvmserver::daemon
