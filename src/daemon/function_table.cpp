#include "src/daemon/function_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/store/functions/secrets.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

namespace {

constexpr unsigned kQueue = 1024; // if a manifest has no scale.queue

std::optional<std::uint64_t> least(const std::optional<std::uint64_t>& a, const std::optional<std::uint64_t>& b) {
    return !a ? b : !b ? a : std::min(*a, *b);
}

} // namespace

FunctionTable::FunctionTable(store::Store& store, WorkerPool& pool, LogStore& logs, const Defaults& defaults,
                             std::function<std::shared_ptr<const CeilingsFile>()> ceilings,
                             std::function<void(const std::string&)> note)
    : store_(store), pool_(pool), logs_(logs), defaults_(defaults), ceilings_(std::move(ceilings)),
      note_(std::move(note)) {
    table_.store(std::make_shared<RoutingTable>());
}

bool FunctionTable::refresh(bool anyhow) {
    const std::lock_guard lock(mutex_);
    const std::int64_t version = store_.data_version();
    if (version == seen_ && !anyhow)
        return false;
    const bool first = !looked_;
    auto table = std::make_shared<RoutingTable>();
    std::map<Key, Known> known;
    std::map<std::pair<std::string, std::uint64_t>, unsigned> shares;
    std::map<Identity, std::shared_ptr<const Destination>> functions;
    Faults faults;
    bool again = false;
    for (const store::FunctionSummary& function : store::Functions(store_).list()) {
        Part part;
        try {
            part = part_of(function, faults);
        } catch (const std::exception& error) { // the store is busy or damaged
            again = true;
            faults[function.name] = fmt::format("{} stays as it was: {}", function.name, error.what());
            part = former_part(function);
        }
        for (const Share& share : part.destination->shares)
            if (share.version)
                shares[{function.name, share.version->facts().version}] = share.percent;
        known.merge(part.known);
        ++table->functions;
        for (const store::Route& route : function.routes)
            table->add(route, part.destination);
        functions[{function.name, function.created}] = std::move(part.destination);
    }
    table->sort();
    table_.store(std::move(table));
    seen_ = again ? kNothing : version; // after a failure the next call reads again, even if nothing has changed
    const auto before = std::exchange(known_, std::move(known));
    shares_ = std::move(shares);
    for (const auto& [key, entry] : known_)
        if (const auto old = before.find(key); old == before.end() || old->second.version != entry.version)
            pool_.adopt(entry.version);
    for (const auto& [key, entry] : before)
        if (const auto now = known_.find(key); now == known_.end() || now->second.version != entry.version)
            pool_.retire(entry.version);
    for (const auto& [identity, destination] : std::exchange(functions_, std::move(functions)))
        if (!functions_.contains(identity))
            logs_.forget(identity.first);
    looked_ = true;
    if (first) // deleted while no daemon ran, or logged after the deletion
        for (const std::string& name : logs_.functions())
            if (std::none_of(functions_.begin(), functions_.end(),
                             [&](const auto& function) { return function.first.first == name; }))
                logs_.forget(name);
    const auto said = std::exchange(faults_, std::move(faults));
    for (const auto& [what, line] : faults_)
        if (const auto old = said.find(what); old == said.end() || old->second != line)
            note_(line);
    return true;
}

// Throws errors that are not the manifest's: a retry may succeed.
FunctionTable::Part FunctionTable::part_of(const store::FunctionSummary& function, Faults& faults) {
    Part part;
    part.destination = std::make_shared<Destination>();
    part.destination->function = function.name;
    std::optional<std::uint64_t> log_bytes;
    for (const store::Live& live : function.live) {
        const Key key{function.name, function.created, live.version};
        try {
            const auto before = known_.find(key);
            Known entry = before != known_.end() ? before->second : read_version(function.name, live.version);
            const store::FunctionDetails details = store::Functions(store_).describe(function.name);
            const auto info = std::ranges::find(details.live_versions, live.version, &store::VersionInfo::number);
            if (info != details.live_versions.end() && info->snapshot != entry.snapshot) { // compressed anew
                entry.snapshot = info->snapshot;
                if (entry.version && entry.version->facts().kept)
                    pool_.restore_from(*entry.version, entry.snapshot); // its machine is not replaced for that
                else
                    entry.version = nullptr;
            }
            Values values = values_of(function.name, entry, details);
            const std::vector<Ceilings> ceilings = ceilings_of(function.name, entry);
            for (const Ceilings& each : ceilings)
                log_bytes = least(log_bytes, each.log_bytes);
            // New values or ceilings need a new process.
            if (!entry.version || entry.version->facts().values != values ||
                entry.version->facts().ceilings != ceilings_text(ceilings))
                entry.version =
                    make_version({function.name, function.created}, live.version, entry, std::move(values), ceilings);
            part.destination->shares.push_back({entry.version, live.percent});
            part.known.emplace(key, std::move(entry));
        } catch (const tinykvm::UserError& error) {
            if (error.code() != tinykvm::ExitCode::usage)
                throw;
            const std::string name = fmt::format("{} v{}", function.name, live.version);
            faults[name] = fmt::format("{} cannot be served: {}", name, error.what());
            part.destination->shares.push_back({nullptr, live.percent});
        }
    }
    logs_.limit(function.name, log_bytes);
    return part;
}

// What was live stays live.
FunctionTable::Part FunctionTable::former_part(const store::FunctionSummary& function) {
    Part part;
    part.destination = std::make_shared<Destination>();
    part.destination->function = function.name;
    if (const auto former = functions_.find({function.name, function.created}); former != functions_.end())
        *part.destination = *former->second;
    else
        for (const store::Live& live : function.live)
            part.destination->shares.push_back({nullptr, live.percent});
    for (const auto& [key, entry] : known_)
        if (std::get<0>(key) == function.name && std::get<1>(key) == function.created)
            part.known.emplace(key, entry);
    return part;
}

FunctionTable::Known FunctionTable::read_version(const std::string& function, std::uint64_t version) {
    const store::VersionInfo info = store::Functions(store_).version(function, version);
    return {nullptr, function_settings(info.manifest), info.snapshot, info.tenant, info.ceilings};
}

Values FunctionTable::values_of(const std::string& function, const Known& version,
                                const store::FunctionDetails& details) {
    return daemon::values_of(version.settings, details.env, store::Secrets(store_).values(function, version.tenant),
                             details.secrets);
}

// The ceilings of whoever deployed it, and those that are in force now.
std::vector<Ceilings> FunctionTable::ceilings_of(const std::string& function, const Known& known) const {
    std::vector<Ceilings> all = ceilings_from_text(known.ceilings.empty() ? "" : "[" + known.ceilings + "]");
    if (Ceilings now = ceilings_()->of(function); now != Ceilings{})
        all.push_back(std::move(now));
    return all;
}

std::shared_ptr<FunctionVersion> FunctionTable::make_version(const Identity& function, std::uint64_t version,
                                                             const Known& known, Values values,
                                                             const std::vector<Ceilings>& ceilings) {
    FunctionVersion::Facts facts;
    facts.name = fmt::format("{} v{}", function.first, version);
    facts.function = function.first;
    facts.version = version;
    facts.snapshot = known.snapshot;
    const Scale& scale = known.settings.scale;
    facts.min = scale.min;
    facts.max = scale.max.value_or(std::max(defaults_.machines, scale.min));
    facts.queue = scale.queue.value_or(kQueue);
    for (const Ceilings& each : ceilings) {
        facts.max = static_cast<unsigned>(std::min<std::uint64_t>(facts.max, each.machines.value_or(facts.max)));
        facts.min = static_cast<unsigned>(std::min<std::uint64_t>(facts.min, each.kept_machines.value_or(facts.min)));
        facts.queue = static_cast<unsigned>(std::min<std::uint64_t>(facts.queue, each.queue.value_or(facts.queue)));
    }
    facts.min = std::min(facts.min, facts.max);
    if (facts.kept = known.settings.kept; facts.kept)
        facts.max = known.settings.concurrency;
    facts.ceilings = ceilings_text(ceilings);
    facts.idle_ns = scale.idle_ns.value_or(defaults_.idle_ns);
    facts.queue_ns = scale.queue_ns;
    facts.after_restore = known.settings.after_restore;
    facts.values = std::move(values);
    if (!defaults_.share_across_tenants)
        facts.tenant = known.tenant;
    facts.requests = logs_.requests().ring(function.first, function.second);
    return std::make_shared<FunctionVersion>(std::move(facts));
}

std::shared_ptr<FunctionVersion> FunctionTable::version(const std::string& function, std::uint64_t version) {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, entry] : known_)
        if (std::get<0>(key) == function && std::get<2>(key) == version)
            return entry.version;
    const Known entry = read_version(function, version);
    const store::FunctionDetails details = store::Functions(store_).describe(function);
    auto made = make_version({function, details.created}, version, entry, values_of(function, entry, details),
                             ceilings_of(function, entry));
    pool_.retire(made); // its process ends after the request
    return made;
}

std::map<std::pair<std::string, std::uint64_t>, unsigned> FunctionTable::shares() const {
    const std::lock_guard lock(mutex_);
    return shares_;
}

std::set<std::pair<std::string, std::int64_t>> FunctionTable::functions() const {
    const std::lock_guard lock(mutex_);
    std::set<Identity> all;
    for (const auto& [identity, destination] : functions_)
        all.insert(identity);
    return all;
}

} // namespace kvmserver::daemon
