#include "src/daemon/jail_plans.hpp"

#include <exception>
#include <optional>

namespace kvmserver::daemon {

std::string JailPlans::plan_for(const store::StoredSnapshot& snapshot,
                                const std::function<std::unique_ptr<FunctionProcess>()>& make) {
    constexpr std::size_t kMostKnown = 10'000;
    jail::Plan plan;
    if (settings_.mode != jail::Mode::off) {
        const std::lock_guard lock(mutex_);
        if (const auto known = known_.find(snapshot.digest()); known != known_.end()) {
            plan = known->second;
        } else {
            std::optional<jail::Plan> asked;
            try {
                jail::Plan closed;
                closed.mode = settings_.mode;
                asked = make()->describe(snapshot, jail::to_text(closed));
            } catch (const std::exception&) { // as if it asked for nothing
            }
            if (asked) {
                if (known_.size() >= kMostKnown)
                    known_.clear();
                plan = known_.emplace(snapshot.digest(), std::move(*asked)).first->second;
            }
        }
    }
    // These are never the snapshot's to say.
    plan.mode = settings_.mode;
    plan.hidden = settings_.hidden;
    return jail::to_text(plan);
}

} // namespace kvmserver::daemon
