// What is left open of the jails of functions' processes (src/jail).
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
    std::vector<std::string> hidden;       // absolute paths of ours: no permission shows them to a function
    std::shared_ptr<ControlGroups> groups; // null: none
};

// For any number of threads.
class JailPlans {
public:
    JailPlans(JailSettings settings, Examinations& examinations)
        : settings_(std::move(settings)), examinations_(examinations) {}

    // FunctionProgram::jail of a snapshot that is under `ceilings`. It may have to be examined first: where that fails
    // nothing is open, and the function's own process says what is wrong with the snapshot.
    std::string plan_for(const store::StoredSnapshot& snapshot, const std::vector<Ceilings>& ceilings);
    // Of the control group of its process, for so many machines.
    GroupLimits limits_for(const store::StoredSnapshot& snapshot, const std::vector<Ceilings>& ceilings,
                           unsigned machines);
    // Whether these are quick.
    bool knows(const Digest& digest);
    jail::Mode mode() const { return settings_.mode; }
    ControlGroups* groups() const { return settings_.groups.get(); }

private:
    const JailSettings settings_;
    Examinations& examinations_;
};

} // namespace kvmserver::daemon
