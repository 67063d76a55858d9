// kvmserver doctor: checks whether machines can run here, one line per check.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <ostream>

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

// Prints lines as they come, or all of them at the end as one JSON object.
class Report {
public:
    Report(bool json, std::ostream& out) : json_(json), out_(out) {}

    void add(const Check& check) {
        if (!json_)
            out_ << check.line << '\n';
        nlohmann::json object{{"subject", check.subject},
                              {"state", kStates[static_cast<std::size_t>(check.state)]},
                              {"detail", check.line}};
        if (!check.mend.empty())
            object["mend"] = check.mend;
        checks_.push_back(std::move(object));
    }
    void fixed(const std::string& line) {
        if (!json_)
            out_ << "fix: " << line << '\n';
        fixes_.push_back(line);
    }
    void again() { checks_.clear(); } // the checks are repeated
    void end(int code) {
        if (!json_)
            return;
        nlohmann::json object{{"usable", code == 0}, {"checks", checks_}};
        if (!fixes_.empty())
            object["fixes"] = fixes_;
        out_ << object.dump(2) << '\n';
    }

private:
    static constexpr const char* kStates[] = {"ok", "advice", "stops"}; // by Check::State
    bool json_;
    std::ostream& out_;
    nlohmann::json checks_ = nlohmann::json::array();
    std::vector<std::string> fixes_;
};

// Runs a harmless command. Returns true if it worked and the checks should be repeated.
bool mend(const Check& check, const Facts& facts, Report& report) {
    const std::string command = fmt::format("{}", fmt::join(check.mend, " "));
    if (!facts.root) {
        report.fixed(fmt::format("needs root: sudo {}", command));
        return false;
    }
    std::vector<std::string> words{"/usr/bin/env"};
    words.insert(words.end(), check.mend.begin(), check.mend.end());
    const auto said = platform::memory_file("kvmserver-doctor");
    const int status = platform::Child(words, "/", said.get()).wait();
    if (status == 0) {
        report.fixed("did " + command);
        return true;
    }
    std::string why = platform::text_of(said.get());
    why.resize(std::min(why.find('\n'), why.size()));
    report.fixed(fmt::format("{} failed with status {}{}{}", command, status, why.empty() ? "" : ": ", why));
    return false;
}

// Returns whether anything was mended.
bool fix(const std::vector<Check>& checks, const Facts& facts, Report& report) {
    bool any = false, mended = false;
    for (const Check& check : checks)
        if (!check.mend.empty()) {
            any = true;
            mended |= mend(check, facts, report);
        }
    if (!any)
        report.fixed("nothing here that it may mend");
    return mended;
}

Check of(const char* subject, bool good, std::string line) {
    return {.subject = subject, .state = good ? Check::State::good : Check::State::advice, .line = std::move(line)};
}

// Describes the jail that function processes would get.
Check walls() {
    try {
        const auto missing = daemon::FunctionProcess::for_trial(ops::kSelf, jail::Mode::automatic)->missing_walls();
        if (missing && missing->empty())
            return of("jail", true, "jail ok (every wall)");
        if (missing)
            return of("jail", false,
                      fmt::format("jail lacks walls: {}; docs/SECURITY.md says what each is worth", *missing));
    } catch (const tinykvm::HostError&) {
    }
    return of("jail", false, "jail: not tried, a process could not be started");
}

// Whether `serve` could account for and limit the resources of each function.
Check groups() {
    const std::string missing = daemon::ControlGroups::would_miss();
    if (missing.empty())
        return of("control-groups", true, "control groups ok (memory, pids, cpu, io)");
    return of(
        "control-groups", false,
        fmt::format("control groups: {}; nothing to do: functions keep their own limits (docs/SERVE.md)", missing));
}

// Tries KVM itself.
Check probe(const std::string& device, int& code) {
    try {
        return of("kvm", true, probe_line(device));
    } catch (const tinykvm::UserError& reason) {
        code = static_cast<int>(reason.code());
        return {.subject = "kvm", .state = Check::State::stops, .line = reason.what()};
    }
}

int examine(const std::string& device, const Invocation& invocation, const Context& context, Report& report,
            bool fixing) {
    const Facts facts = doctor::gather(device, store_of(invocation, context));
    int code = 0;
    const std::vector<Check> checks = doctor::device_checks(facts);
    for (const Check& check : checks) {
        report.add(check);
        if (check.stops())
            code = static_cast<int>(tinykvm::ExitCode::no_kvm);
    }
    if (code == 0) {
        report.add(probe(device, code));
        if (code == 0) {
            report.add(walls());
            report.add(groups());
        }
        if (facts.nested_off)
            report.add(of("nested", false,
                          "nested virtualisation off: machines of this host cannot run kvmserver themselves "
                          "(kvm_intel or kvm_amd nested=1)"));
    }
    for (const Check& check : doctor::other_checks(facts))
        report.add(check);
    if (!fixing || !fix(checks, facts, report))
        return code;
    report.again();
    return examine(device, invocation, context, report, false);
}

int doctor_action(const std::string& device, const Invocation& invocation, Context& context) {
    Report report(platform::flag(invocation, "json"), context.out);
    const int code = examine(device, invocation, context, report, platform::flag(invocation, "fix"));
    report.end(code);
    return code;
}

} // namespace

Command doctor_command(const std::string& device) {
    return {.name = "doctor",
            .synopsis = "",
            .summary = "check that machines can run here, and say how to mend it",
            .operands = Operands::none,
            .options = {kFix, platform::kStore, platform::kJson},
            .action = [device](const Invocation& invocation, Context& context) {
                return doctor_action(device, invocation, context);
            }};
}

} // namespace kvmserver::cli
