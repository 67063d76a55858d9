#include "src/cli/processes/examiner_process.hpp"

#include <sched.h>

#include <optional>

#include "src/cli/processes/inner_process.hpp"
#include "src/runner/examiner.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {

int examiner_process(const std::vector<std::string>& words) {
    return inner_process([&] {
        const bool idle = words.size() == 4 && words[3] == "idle";
        const auto mode = words.size() == 3 || idle ? jail::mode_of(words[2]) : std::nullopt;
        if (!mode)
            throw tinykvm::UserError(tinykvm::ExitCode::usage,
                                     std::string(kExaminer) + " is for `kvmserver serve` to use");
        if (idle) { // it runs when nothing else wants the processor
            const sched_param none{};
            (void)::sched_setscheduler(0, SCHED_IDLE, &none);
        }
        return run_examiner(inherited(words[1]), *mode);
    });
}

} // namespace kvmserver::cli
