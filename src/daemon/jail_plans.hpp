// What the jails of function processes leave open (src/jail).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/ceilings/ceilings.hpp"
#include "src/daemon/control_groups.hpp"
#include "src/daemon/examinations.hpp"
#include "src/jail/plan.hpp"
#include "src/store/snapshots/stored_snapshot.hpp"

namespace kvmserver::daemon {

struct JailSettings {
    jail::Mode mode = jail::Mode::automatic;
    std::vector<std::string> hidden;       // our own absolute paths, which no permission shows to a function
    std::shared_ptr<ControlGroups> groups; // null: none
};

// Thread-safe.
class JailPlans {
public:
    JailPlans(JailSettings settings, Examinations& examinations)
        : settings_(std::move(settings)), examinations_(examinations) {}

    // FunctionProgram::jail for a snapshot under `ceilings`. May have to examine the snapshot first. If that fails
    // nothing is left open, and the function's own process reports the reason.
    std::string plan_for(const store::StoredSnapshot& snapshot, const std::vector<Ceilings>& ceilings);
    // Limits of its process's control group with that many machines.
    GroupLimits limits_for(const store::StoredSnapshot& snapshot, const std::vector<Ceilings>& ceilings,
                           unsigned machines);
    // The most that the saved state of its machine may take.
    std::uint64_t state_bytes_for(const store::StoredSnapshot& snapshot, const std::vector<Ceilings>& ceilings);
    // Whether the functions above return without an examination.
    bool knows(const Digest& digest);
    jail::Mode mode() const { return settings_.mode; }
    ControlGroups* groups() const { return settings_.groups.get(); }

private:
    std::optional<tinykvm::Limits> machine_limits(const store::StoredSnapshot& snapshot,
                                                  const std::vector<Ceilings>& ceilings);

    const JailSettings settings_;
    Examinations& examinations_;
};

} // namespace kvmserver::daemon
