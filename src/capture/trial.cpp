#include "src/capture/trial.hpp"
#include "src/capture/warm_up.hpp"
#include "src/event_loop/event_loop.hpp"
#include "src/setup/report.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "tinykvm/base/error.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

constexpr double kTrialSeconds = 3;
constexpr unsigned kClient = 0; // WarmupRequest::wire()
constexpr std::uint64_t kTrialLaterNs = 86'400'000'000'000;

MachineEnv trial_env(MachineEnv env) {
    env.options.trial = true;
    env.options.verbose = false;
    env.options.trace_syscalls = env.options.trace_mmap = false;
    return env;
}

} // namespace

Trial::Trial(const Setup& setup, const Options& options, const std::shared_ptr<const MachineImage>& image)
    : env_(trial_env(setup.env)), options_(options),
      output_(std::make_shared<HiddenOutput>(program_name(setup.program))) {
    options_.limits.request_seconds = options_.limits.request_total_seconds = options_.limits.boot_seconds =
        kTrialSeconds;
    options_.on_phase = {}; // whoever tries tells of it
    clone_.loop = std::make_unique<EventLoop>(EventLoop::Own::dry, [](const std::string&) {});
    clone_.loop->set_output(sink_of(output_));
    clone_.machine = Machine::clone(env_, image, *clone_.loop, ResetStrategy::working_set);
    clone_.machine->skip_time(kTrialLaterNs);
    clone_.machine->reset_after_connection();
}

bool Trial::answer() {
    try {
        clone_.warm_statuses.clear();
        bool first = true;
        for (const WarmupRequest& request : options_.warmup_requests) {
            if (!std::exchange(first, false) && clone_.machine->child_serves()) { // it ended, and nobody waits
                clone_.machine->reset();
                clone_.machine->prepare();
            }
            warm_up_once(clone_, options_, request, kClient);
        }
        return true;
    } catch (const UserError&) {
        return false;
    }
}

bool Trial::answer(const WarmupRequest& request) {
    try {
        clone_.warm_statuses.clear();
        warm_up_once(clone_, options_, request, kClient);
        return true;
    } catch (const UserError&) {
        return false;
    }
}

std::optional<std::uint64_t> Trial::cost_ns() {
    constexpr unsigned kAnswers = 4;
    std::uint64_t all = 0;
    std::vector<unsigned> statuses;
    for (const WarmupRequest& request : options_.warmup_requests) {
        std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
        for (unsigned i = 0; i < kAnswers; ++i) {
            clone_.machine->reset();
            clone_.machine->prepare();
            try {
                least = std::min(least, warm_up_once(clone_, options_, request, kClient));
            } catch (const UserError&) {
                return std::nullopt;
            }
        }
        all += least;
        statuses.push_back(clone_.warm_statuses.back());
    }
    clone_.warm_statuses = std::move(statuses);
    return all;
}

} // namespace kvmserver
