// What is left open of the jails of functions' processes (src/jail).
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/daemon/function_process.hpp"
#include "src/jail/plan.hpp"
#include "src/store/stored_snapshot.hpp"

namespace kvmserver::daemon {

struct JailSettings {
    jail::Mode mode = jail::Mode::automatic;
    std::vector<std::string> hidden;  // absolute paths of ours: no permission shows them to a function
};

// For any number of threads.
class JailPlans {
public:
    explicit JailPlans(JailSettings settings) : settings_(std::move(settings)) {}

    // FunctionProgram::jail of a snapshot. What the snapshot asks for is read by a process that is used up by it, in a jail with nothing open;
    // once, or a minute after it failed. Where it fails nothing is open: the function's own process then says what is wrong with the snapshot.
    std::string plan_for(const store::StoredSnapshot& snapshot, const std::function<std::unique_ptr<FunctionProcess>()>& make);
    jail::Mode mode() const { return settings_.mode; }

private:
    const JailSettings settings_;
    std::mutex mutex_;
    struct Known {
        std::optional<jail::Plan> plan;                 // nothing: it could not be read
        std::chrono::steady_clock::time_point again{}; // then: when it is tried again
    };
    std::map<store::Digest, Known> known_;
};

} // namespace kvmserver::daemon
