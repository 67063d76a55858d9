// kvmserver versions, rollback, traffic: which version of a function answers.
#include <fmt/format.h>

#include <algorithm>

#include "src/cli/platform/platform.hpp"
#include "src/store/errors.hpp"

namespace kvmserver::cli {
namespace {

using namespace platform;
using store::Live;
using store::VersionInfo;
using store::VersionState;

int versions(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "versions", "NAME", 1, 1);
    const auto opened = open_store(invocation, context);
    const auto all = store::Functions(*opened).versions(invocation.operands.front());
    if (flag(invocation, "json")) {
        auto list = nlohmann::json::array();
        for (const VersionInfo& version : all)
            list.push_back(version_json(version));
        print_json(context, {{"name", invocation.operands.front()}, {"versions", list}});
        return 0;
    }
    for (const VersionInfo& version : all)
        context.out << fmt::format("v{} {} {} {} sha256:{}\n", version.number,
                                   version.percent > 0 ? fmt::format("live:{}%", version.percent)
                                                       : store::name_of(version.state),
                                   time_text(version.created), bytes_text(version.snapshot_bytes),
                                   version.snapshot.hex().substr(0, 12));
    return 0;
}

int tell(const Invocation& invocation, Context& context, const std::string& name,
         const std::vector<Live>& before, const std::vector<Live>& live, bool dry_run) {
    if (flag(invocation, "json"))
        print_json(
            context,
            {{"name", name}, {"before", live_json(before)}, {"live", live_json(live)}, {"dry_run", dry_run}});
    else
        context.out << fmt::format("{} {} -> {}{}\n", name, live_text(before), live_text(live),
                                   dry_run ? " (dry run)" : "");
    return 0;
}

// What is live, from a list of versions.
std::vector<Live> live_of(const std::vector<VersionInfo>& all) {
    std::vector<Live> live;
    for (const VersionInfo& version : all)
        if (version.percent > 0)
            live.push_back({version.number, version.percent});
    std::ranges::sort(live, {}, &Live::version);
    return live;
}

// The checks of Functions::set_traffic.
void check_possible(const std::string& name, const std::vector<VersionInfo>& all,
                    const std::vector<Live>& live) {
    store::check_traffic(live);
    for (const Live& part : live) {
        const auto at = std::ranges::find(all, part.version, &VersionInfo::number);
        if (at == all.end())
            throw store::NotFound(
                fmt::format("{} has no v{}: `kvmserver versions {}` shows those that there are", name,
                            part.version, name));
        if (at->state != VersionState::ready)
            throw store::Conflict(fmt::format("{} v{} is {}, not ready: it cannot go live", name,
                                              part.version, store::name_of(at->state)));
    }
}

int rollback(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "rollback", "NAME [VERSION]", 1, 2);
    const std::string& name = invocation.operands.front();
    std::optional<std::uint64_t> target;
    if (invocation.operands.size() == 2)
        target = version_number(invocation.operands[1]);
    const bool dry_run = flag(invocation, "dry-run");
    const auto opened = open_store(invocation, context);
    store::Functions functions(*opened);
    if (!dry_run) {
        const auto switched = functions.rollback(name, target);
        return tell(invocation, context, name, switched.before, switched.live, false);
    }
    const auto all = functions.versions(name); // newest first
    const auto before = live_of(all);
    if (!target) {
        const auto most = std::ranges::max_element(
            before, [](const Live& a, const Live& b) { return a.percent <= b.percent; });
        const auto older = std::ranges::find_if(all, [&](const VersionInfo& version) {
            return most != before.end() && version.number < most->version &&
                   version.state == VersionState::ready;
        });
        if (older == all.end())
            throw store::NotFound(fmt::format("{} has no ready version to roll back to", name));
        target = older->number;
    }
    const std::vector<Live> live{{*target, 100}};
    check_possible(name, all, live);
    return tell(invocation, context, name, before, live, true);
}

// "3=10", "v3=10%".
Live share(const std::string& word) {
    const auto equals = word.find('=');
    if (equals == word.npos)
        throw tinykvm::UserError(tinykvm::ExitCode::usage,
                                 fmt::format("'{}': write VERSION=PERCENT, as v3=10", word));
    std::string percent = word.substr(equals + 1);
    if (percent.ends_with('%'))
        percent.pop_back();
    const std::uint64_t value = number(percent, "percentage");
    if (value > 100)
        throw tinykvm::UserError(tinykvm::ExitCode::usage, fmt::format("'{}': that is more than 100%", word));
    return {version_number(word.substr(0, equals)), static_cast<unsigned>(value)};
}

int traffic(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "traffic", "NAME VERSION=PERCENT...", 2, 100);
    const std::string& name = invocation.operands.front();
    std::vector<Live> live;
    for (std::size_t i = 1; i < invocation.operands.size(); ++i)
        if (const Live part = share(invocation.operands[i]); part.percent > 0)
            live.push_back(part);
    if (live.empty())
        throw tinykvm::UserError(tinykvm::ExitCode::usage, "traffic: the percentages must be 100 in all");
    std::ranges::sort(live, {}, &Live::version);
    const bool dry_run = flag(invocation, "dry-run");
    const auto opened = open_store(invocation, context);
    store::Functions functions(*opened);
    if (dry_run) {
        const auto all = functions.versions(name);
        check_possible(name, all, live);
        return tell(invocation, context, name, live_of(all), live, true);
    }
    const auto switched = functions.set_traffic(name, live);
    return tell(invocation, context, name, switched.before, switched.live, false);
}

} // namespace

Command versions_command() {
    return {.name = "versions",
            .synopsis = "NAME",
            .summary = "list the versions of a function",
            .operands = Operands::ours,
            .options = options(),
            .action = versions};
}

Command rollback_command() {
    return {.name = "rollback",
            .synopsis = "NAME [VERSION]",
            .summary = "make an older version live",
            .operands = Operands::ours,
            .options = options({kDryRun}),
            .action = rollback};
}

Command traffic_command() {
    return {.name = "traffic",
            .synopsis = "NAME VERSION=PERCENT...",
            .summary = "divide requests between versions",
            .operands = Operands::ours,
            .options = options({kDryRun}),
            .action = traffic};
}

} // namespace kvmserver::cli
