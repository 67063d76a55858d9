// What the API says of the versions that run.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>

#include "src/daemon/service.hpp"
#include "src/store/errors.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::daemon {

namespace {

// The PSS divides shared pages among the processes that share them.
void read_memory(VersionLive& one) {
    std::FILE* const file = std::fopen(fmt::format("/proc/{}/smaps_rollup", one.pid).c_str(), "re");
    if (!file)
        return;
    unsigned long long kib = 0;
    for (char line[256]; std::fgets(line, sizeof line, file);)
        if (std::sscanf(line, "Rss: %llu", &kib) == 1)
            one.resident_bytes = kib * 1024;
        else if (std::sscanf(line, "Pss: %llu", &kib) == 1)
            one.memory_bytes = kib * 1024;
    std::fclose(file);
}

// Machines of one version that keep states of their own are one entry, with the worst of their states.
void join_machines(std::vector<VersionLive>& all) {
    constexpr std::array<std::string_view, 5> kWorstFirst{"failing", "unsaved", "starting", "ready",
                                                          "idle"}; // suspended: below
    const auto rank = [&](const VersionLive& one) { return std::ranges::find(kWorstFirst, one.state); };
    std::map<std::pair<std::string, std::uint64_t>, VersionLive> joined;
    std::vector<VersionLive> stopping;
    for (VersionLive& one : all) {
        if (one.state == "stopping") {
            stopping.push_back(std::move(one));
            continue;
        }
        const auto [at, is_new] = joined.try_emplace({one.function, one.version}, one);
        if (is_new)
            continue;
        VersionLive& sum = at->second;
        if (rank(one) < rank(sum))
            sum.state = one.state;
        sum.pid = sum.pid == 0 ? one.pid : one.pid == 0 ? sum.pid : std::min(sum.pid, one.pid);
        sum.machines += one.machines;
        sum.busy += one.busy;
        sum.in_flight += one.in_flight;
        sum.queued += one.queued;
        sum.starts += one.starts;
        if (!one.last_failure.empty())
            sum.last_failure = one.last_failure;
        sum.memory_bytes += one.memory_bytes;
        sum.resident_bytes += one.resident_bytes;
    }
    all = std::move(stopping);
    for (auto& [key, one] : joined)
        all.push_back(std::move(one));
}

} // namespace

std::vector<std::shared_ptr<FunctionVersion>> Service::suspending(const std::string& function) const {
    auto versions = table_.live(function);
    if (!versions)
        throw store::NotFound(fmt::format("there is no function {}", tinykvm::brief(function)));
    for (const auto& version : *versions)
        if (const auto& moved = version->facts().given->moved)
            throw store::Conflict(fmt::format("{} was migrated to {}", function, moved->to));
    std::erase_if(*versions, [](const auto& version) { return !version->facts().suspends; });
    if (versions->empty())
        throw store::Conflict(
            fmt::format("{} has no machine that can be suspended: it needs [function] ephemeral = false "
                        "and [function.scale] suspend = true",
                        function));
    return *std::move(versions);
}

unsigned Service::suspend(const std::string& function) {
    unsigned machines = 0;
    for (const auto& version : suspending(function))
        machines += pool_.suspend(version);
    return machines;
}

unsigned Service::resume(const std::string& function) {
    unsigned machines = 0;
    for (const auto& version : suspending(function)) {
        pool_.resume(version);
        machines += version->facts().machines;
    }
    return machines;
}

std::map<std::pair<std::string, std::uint64_t>, unsigned>
Service::suspended_machines(const std::vector<VersionLive>& running) const {
    std::set<std::tuple<std::string, std::uint64_t, unsigned>> processes;
    for (const VersionLive& one : running)
        if (one.pid != 0 || one.state == "starting")
            processes.emplace(one.function, one.version, one.machine);
    std::map<std::pair<std::string, std::uint64_t>, unsigned> suspended;
    for (const auto& [id, owner] : store::saved_states(store_.folder())) {
        if (processes.contains({owner.function, owner.version, owner.machine}))
            continue;
        const auto versions = table_.live(owner.function);
        if (!versions)
            continue;
        for (const auto& version : *versions)
            if (version->facts().version == owner.version && owner.machine <= version->facts().machines) {
                const FunctionVersion& machine = owner.machine <= 1 ? *version : *version->others()[owner.machine - 2];
                // A machine that was given other values begins anew.
                suspended[{owner.function, owner.version}] += id == machine.state_id();
            }
    }
    std::erase_if(suspended, [](const auto& each) { return each.second == 0; });
    return suspended;
}

std::vector<VersionLive> Service::live(bool running) const {
    std::vector<VersionLive> all = pool_.live();
    std::set<std::pair<std::string, std::uint64_t>> run;
    const std::map<std::pair<std::string, std::uint64_t>, unsigned> suspended = suspended_machines(all);
    for (VersionLive& one : all)
        if (one.pid != 0)
            read_memory(one);
    join_machines(all);
    for (VersionLive& one : all) {
        if (one.state == "stopping")
            continue;
        if (const auto share = table_.share(one.function, one.version)) {
            one.percent = *share;
            run.emplace(one.function, one.version);
        }
    }
    std::map<std::pair<std::string, std::uint64_t>, FunctionTable::LiveVersion> others;
    if (!running)
        others = table_.shares();
    else
        for (const auto& [key, machines] : suspended)
            others[key] = {table_.share(key.first, key.second).value_or(0), true};
    for (const auto& [key, version] : others) {
        if (run.contains(key))
            continue;
        VersionLive& one = all.emplace_back();
        one.function = key.first;
        one.version = key.second;
        one.percent = version.percent;
        one.suspends = version.suspends;
        one.state = "idle";
    }
    for (VersionLive& one : all) {
        const auto found = suspended.find({one.function, one.version});
        if (found == suspended.end() || one.state == "stopping")
            continue;
        one.suspended = found->second;
        if (one.state == "idle")
            one.state = "suspended";
    }
    std::sort(all.begin(), all.end(), [](const VersionLive& a, const VersionLive& b) {
        return std::tie(a.function, a.version) < std::tie(b.function, b.version);
    });
    return all;
}

} // namespace kvmserver::daemon
