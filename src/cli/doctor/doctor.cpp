// kvmserver doctor: checks whether machines can run here, one line per check.
#include <fmt/format.h>
#include <unistd.h>

#include "src/cli/command.hpp"
#include "src/cli/doctor/advice.hpp"
#include "src/cli/doctor/probe_line.hpp"
#include "src/cli/platform/child.hpp"
#include "src/cli/platform/platform.hpp"
#include "src/daemon/function_process.hpp"
#include "src/ops/child.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

using doctor::Check;
using doctor::Facts;

constexpr OptionSpec kFix{
    .name = "fix", .group = "Options", .help = "mend what can be mended safely (as root), and say what was done"};

std::string store_of(const Invocation& invocation, const Context& context) {
    try {
        return platform::store_path(invocation, context).string();
    } catch (const tinykvm::UserError&) { // neither HOME nor any other variable is set
        return {};
    }
}

// Runs a harmless command. Returns true if it worked and the checks should be repeated.
bool mend(const Check& check, const Facts& facts, Context& context) {
    const std::string command = fmt::format("{}", fmt::join(check.mend, " "));
    if (!facts.root) {
        context.out << fmt::format("fix: needs root: sudo {}\n", command);
        return false;
    }
    std::vector<std::string> words{"/usr/bin/env"};
    words.insert(words.end(), check.mend.begin(), check.mend.end());
    const auto said = platform::memory_file("kvmserver-doctor");
    const int status = platform::Child(words, "/", said.get()).wait();
    if (status == 0) {
        context.out << fmt::format("fix: did {}\n", command);
        return true;
    }
    std::string why = platform::text_of(said.get());
    why.resize(std::min(why.find('\n'), why.size()));
    context.out << fmt::format("fix: {} failed with status {}{}{}\n", command, status, why.empty() ? "" : ": ", why);
    return false;
}

void fix(const std::vector<Check>& checks, const Facts& facts, Context& context, bool& mended) {
    bool any = false;
    for (const Check& check : checks)
        if (!check.mend.empty()) {
            any = true;
            mended |= mend(check, facts, context);
        }
    if (!any)
        context.out << "fix: nothing here that it may mend\n";
}

// Describes the jail that function processes would get.
std::string walls_line() {
    try {
        const auto missing = daemon::FunctionProcess::for_trial(ops::kSelf, jail::Mode::automatic).missing_walls();
        if (missing)
            return missing->empty()
                       ? "jail ok (every wall)"
                       : fmt::format("jail lacks walls: {}; docs/SECURITY.md says what each is worth", *missing);
    } catch (const tinykvm::HostError&) {
    }
    return "jail: not tried, a process could not be started";
}

// Whether `serve` could account for and limit the resources of each function.
std::string groups_line() {
    const std::string missing = daemon::ControlGroups::would_miss();
    return missing.empty() ? "control groups ok (memory, pids, cpu, io)"
                           : fmt::format("control groups: {}; functions are bounded by their own limits only", missing);
}

int examine(const std::string& device, const Invocation& invocation, Context& context, bool fixing) {
    const Facts facts = doctor::gather(device, store_of(invocation, context));
    int code = 0;
    std::vector<Check> checks = doctor::device_checks(facts);
    for (const Check& check : checks) {
        context.out << check.line << '\n';
        if (check.stops)
            code = static_cast<int>(tinykvm::ExitCode::no_kvm);
    }
    if (code == 0) {
        try {
            context.out << probe_line(device) << '\n';
        } catch (const tinykvm::UserError& reason) {
            context.out << reason.what() << '\n';
            code = static_cast<int>(reason.code());
        }
        if (code == 0)
            context.out << walls_line() << '\n' << groups_line() << '\n';
        if (facts.nested_off)
            context.out << "nested virtualisation off: machines of this host cannot run kvmserver themselves "
                           "(kvm_intel or kvm_amd nested=1)\n";
    }
    for (const Check& check : doctor::other_checks(facts))
        context.out << check.line << '\n';
    if (!fixing)
        return code;
    bool mended = false;
    fix(checks, facts, context, mended);
    return mended ? examine(device, invocation, context, false) : code;
}

} // namespace

Command doctor_command(const std::string& device) {
    return {.name = "doctor",
            .synopsis = "",
            .summary = "check that machines can run here, and say how to mend it",
            .operands = Operands::none,
            .options = {kFix, platform::kStore},
            .action = [device](const Invocation& invocation, Context& context) {
                return examine(device, invocation, context, platform::flag(invocation, "fix"));
            }};
}

} // namespace kvmserver::cli
