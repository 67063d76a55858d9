#include "src/cli/processes/function_process.hpp"

#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstdlib>

#include "src/cli/processes/inner_process.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {

int function_process(const std::vector<std::string>& words, std::span<char> title,
                     const std::function<int(FunctionOptions)>& action) {
    return inner_process([&] {
        const bool with_parent = words.size() == 6 && words[5] == "with-parent";
        const auto mode = words.size() > 3 ? jail::mode_of(words[3]) : std::nullopt;
        if ((words.size() != 5 && !with_parent) || !mode)
            throw tinykvm::UserError(tinykvm::ExitCode::usage,
                                     std::string(kFunctionProcess) + " is for `kvmserver serve` to use");
        if (with_parent)
            ::prctl(PR_SET_PDEATHSIG, SIGKILL); // a parent that ended before this has closed its end of `control`
        FunctionOptions options;
        options.control = inherited(words[2]);
        options.jail = *mode;
        options.ahead_bytes = std::strtoull(words[4].c_str(), nullptr, 10);
        options.on_name = [title](const std::string& name) {
            std::ranges::fill(title, '\0');
            std::ranges::copy_n(name.begin(), static_cast<std::ptrdiff_t>(std::min(name.size(), title.size())),
                                title.begin());
        };
        options.machine.ephemeral = true;
        return action(std::move(options));
    });
}

} // namespace kvmserver::cli
