#include "src/cli/processes/function_process.hpp"

#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "src/cli/processes/inner_process.hpp"
#include "src/daemon/function_template.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/kvm/probe.hpp"

namespace kvmserver::cli {

namespace {

void write_over(std::span<char> memory, const std::string& text, char rest) {
    std::ranges::fill(memory, rest);
    std::ranges::copy_n(text.begin(), static_cast<std::ptrdiff_t>(std::min(text.size(), memory.size())),
                        memory.begin());
}

// What all processes that are forked from this one then know: one VM less for each to make and to destroy.
void probe_host() {
    try {
        tinykvm::kvm::host_kind(tinykvm::kvm::Kvm::open());
    } catch (const std::exception&) { // each of them tries it again, and says what is wrong
    }
}

int serve_function(const std::vector<std::string>& words, std::span<char> title, tinykvm::UniqueFd hosts_network,
                   const std::function<int(FunctionOptions)>& action) {
    return inner_process([&] {
        const bool with_parent = words.size() == 6 && words[5] == "with-parent";
        const auto mode = words.size() > 3 ? jail::mode_of(words[3]) : std::nullopt;
        if ((words.size() != 5 && !with_parent) || !mode)
            throw tinykvm::UserError(tinykvm::ExitCode::usage,
                                     std::string(daemon::kFunctionProcess) + " is for `kvmserver serve` to use");
        if (with_parent)
            ::prctl(PR_SET_PDEATHSIG, SIGKILL); // a parent that ended before this has closed its end of `control`
        FunctionOptions options;
        options.control = inherited(words[2]);
        options.jail = *mode;
        options.hosts_network = std::move(hosts_network);
        options.ahead_bytes = std::strtoull(words[4].c_str(), nullptr, 10);
        options.on_name = [title](const std::string& name) { write_over(title, name, '\0'); };
        options.machine.ephemeral = true;
        return action(std::move(options));
    });
}

} // namespace

int function_process(const std::vector<std::string>& words, std::span<char> title,
                     const std::function<int(FunctionOptions)>& action) {
    return serve_function(words, title, {}, action);
}

int function_template(const std::vector<std::string>& words, std::span<char> first, std::span<char> title,
                      const std::function<int(FunctionOptions)>& action) {
    std::optional<daemon::ForkedFunction> forked;
    const int code = inner_process([&] {
        const auto mode = words.size() == 4 ? jail::mode_of(words[3]) : std::nullopt;
        if (!mode)
            throw tinykvm::UserError(tinykvm::ExitCode::usage,
                                     std::string(daemon::kFunctionTemplate) + " is for `kvmserver serve` to use");
        tinykvm::UniqueFd control = inherited(words[2]);
        probe_host();
        forked = daemon::fork_functions(control.get(), *mode);
        if (forked)
            (void)control.release(); // it is the forked process's own now
        return 0;
    });
    if (!forked)
        return code;
    write_over(first, daemon::kFunctionProcess, '\0');
    write_over(title, "spare", ' ');
    return serve_function({daemon::kFunctionProcess, words[1], words[2], words[3], std::to_string(forked->ahead_bytes)},
                          title, std::move(forked->hosts_network), action);
}

} // namespace kvmserver::cli
