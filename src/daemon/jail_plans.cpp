#include "src/daemon/jail_plans.hpp"

#include <exception>
#include <optional>

namespace kvmserver::daemon {

std::string JailPlans::plan_for(const store::StoredSnapshot& snapshot,
                                const std::function<std::unique_ptr<FunctionProcess>()>& make) {
    constexpr std::size_t kMostKnown = 10'000;
    // Others wait meanwhile: a snapshot that takes its time is not read each time that it is asked for.
    constexpr std::chrono::minutes kTriedAgain{1};
    jail::Plan plan;
    if (settings_.mode != jail::Mode::off) {
        const std::lock_guard lock(mutex_);
        const auto now = std::chrono::steady_clock::now();
        const auto known = known_.find(snapshot.digest());
        if (known != known_.end() && (known->second.plan || now < known->second.again)) {
            plan = known->second.plan.value_or(jail::Plan{});
        } else {
            std::optional<jail::Plan> asked;
            try {
                jail::Plan closed;
                closed.mode = settings_.mode;
                asked = make()->describe(snapshot, jail::to_text(closed));
            } catch (const std::exception&) { // as if it asked for nothing
            }
            if (known_.size() >= kMostKnown)
                known_.clear();
            plan = asked.value_or(jail::Plan{});
            known_[snapshot.digest()] = {std::move(asked), now + kTriedAgain};
        }
    }
    // These are never the snapshot's to say.
    plan.mode = settings_.mode;
    plan.hidden = settings_.hidden;
    return jail::to_text(plan);
}

} // namespace kvmserver::daemon
