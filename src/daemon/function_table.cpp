#include "src/daemon/function_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <climits>

#include "src/ceilings/claims.hpp"
#include "src/store/errors.hpp"
#include "src/store/functions/tenant.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

namespace {

constexpr unsigned kQueue = 1024;                         // if a manifest has no scale.queue
constexpr std::uint64_t kLongestLinger = 300'000'000'000; // the same of scale.linger

std::optional<std::uint64_t> least(const std::optional<std::uint64_t>& a, const std::optional<std::uint64_t>& b) {
    return !a ? b : !b ? a : std::min(*a, *b);
}

std::shared_ptr<FunctionVersion> share_of(const Destination* destination, std::uint64_t version) {
    if (destination)
        for (const Share& share : destination->shares)
            if (share.version && share.version->facts().version == version)
                return share.version;
    return nullptr;
}

const TcpSettings* tcp_of(const Share& share) {
    return share.version && share.version->facts().given->tcp ? &*share.version->facts().given->tcp : nullptr;
}

bool has_addresses(const Share& share) { return tcp_of(share) && !tcp_of(share)->by_name; }

bool passes_tls(const Share& share) { return tcp_of(share) && tcp_of(share)->by_name; }

// Whether another daemon is about to take the function over, and may still refuse.
bool is_moving(const Destination* destination) {
    return destination && std::ranges::any_of(destination->shares, [](const Share& share) {
               return share.version && share.version->facts().given->moved &&
                      share.version->facts().given->moved->pending;
           });
}

bool has(const Destination* destination, const FunctionVersion& version) {
    return destination && std::ranges::any_of(destination->shares,
                                              [&](const Share& share) { return share.version.get() == &version; });
}

// At least 1, unless it is 0.
unsigned whole_milliseconds(std::uint64_t ns) {
    return static_cast<unsigned>(std::min<std::uint64_t>((ns + 999'999) / 1'000'000, INT_MAX));
}

} // namespace

FunctionTable::FunctionTable(store::Store& store, WorkerPool& pool, LogStore& logs, const Defaults& defaults,
                             std::function<std::shared_ptr<const CeilingsFile>()> ceilings,
                             std::function<void(const std::string&)> note)
    : store_(store), pool_(pool), logs_(logs), defaults_(defaults), ceilings_(std::move(ceilings)),
      note_(std::move(note)) {}

FunctionTable::Read FunctionTable::refresh(bool anyhow) {
    const std::lock_guard lock(mutex_);
    const std::int64_t version = store_.data_version();
    if (version == seen_ && again_.empty() && !anyhow)
        return Read::nothing;
    Refresh refresh;
    refresh.ceilings = ceilings_();
    {
        const store::Served served(store_);
        const store::Changes changes = served.changes_since(last_change_);
        refresh.all = anyhow || !looked_ || changes.all;
        refresh.last_change = changes.last;
        refresh.read = changes.functions;
        refresh.read.insert(again_.begin(), again_.end());
        if (!refresh.all && refresh.read.empty()) { // something that nobody is served by, a token for example
            seen_ = version;
            return Read::nothing;
        }
        refresh.secrets = served.shared_secrets();
        if (refresh.all)
            read_all(served, refresh);
        else
            for (const std::string& name : refresh.read)
                read_one(served, name, refresh);
    }
    seen_ = version;
    put_in_place(refresh);
    return refresh.all ? Read::all : Read::some;
}

void FunctionTable::read_all(const store::Served& served, Refresh& refresh) {
    refresh.read.clear();
    try {
        refresh.changes.reserve(functions_.size());
        served.each([&](const store::ServedFunction& function) { take(function, refresh); });
    } catch (const std::exception&) { // find the functions that are meant, and read the others
        refresh.changes.clear();
        refresh.read.clear();
        refresh.faults.clear();
        for (const std::string& name : served.names())
            read_one(served, name, refresh);
    }
    for (const auto& [name, place] : functions_)
        if (!refresh.read.contains(std::string(name)))
            refresh.changes.push_back({place, nullptr});
}

void FunctionTable::read_one(const store::Served& served, const std::string& name, Refresh& refresh) {
    try {
        if (const auto function = served.find(name))
            take(*function, refresh);
        else if (const Place before = place_of(name))
            refresh.changes.push_back({before, nullptr});
    } catch (const std::exception& error) { // the store is busy or damaged: what was live stays live
        refresh.failed.insert(name);
        refresh.faults[name] = {{name, fmt::format("{} stays as it was: {}", name, error.what())}};
    }
    refresh.read.insert(name);
}

// Throws errors that are not the manifest's: a retry may succeed.
void FunctionTable::take(const store::ServedFunction& function, Refresh& refresh) {
    const Place before = place_of(function.name);
    const Destination* const former = before && before->created == function.created ? before.get() : nullptr;
    auto after = std::make_shared<Destination>();
    after->function = function.name;
    after->created = function.created;
    after->routes = function.routes;
    std::optional<std::uint64_t> log_bytes;
    for (const store::ServedVersion& version : function.live) {
        std::shared_ptr<FunctionVersion> made;
        try {
            made = version_of(function, version, refresh, former, log_bytes);
        } catch (const tinykvm::UserError& error) {
            if (error.code() != tinykvm::ExitCode::usage)
                throw;
            const std::string name = fmt::format("{} v{}", function.name, version.number);
            refresh.faults[function.name][name] = fmt::format("{} cannot be served: {}", name, error.what());
        }
        after->shares.push_back({std::move(made), version.percent});
    }
    after->shares.shrink_to_fit();
    if (std::ranges::any_of(after->shares, has_addresses)) // they are those of an HTTP version before
        after->routes.clear();
    logs_.limit(function.name, log_bytes);
    if (refresh.all && !functions_.empty()) // only then it is asked who is missing
        refresh.read.insert(function.name);
    if (!before || !(*before == *after))
        refresh.changes.push_back({before, std::move(after)});
}

// The one of before, with its processes, unless something of it has changed.
std::shared_ptr<FunctionVersion> FunctionTable::version_of(const store::ServedFunction& function,
                                                           const store::ServedVersion& version, const Refresh& refresh,
                                                           const Destination* former,
                                                           std::optional<std::uint64_t>& log_bytes) {
    const std::vector<Ceilings> ceilings = ceilings_of(function.name, version, *refresh.ceilings);
    for (const Ceilings& each : ceilings)
        log_bytes = least(log_bytes, each.log_bytes);
    FunctionVersion::Facts facts = facts_of(function, version, refresh.secrets, ceilings);
    if (auto same = share_of(former, version.number)) {
        const Digest snapshot = facts.snapshot;
        if (facts.kept) // its machine is not replaced for a snapshot that was compressed anew
            facts.snapshot = same->facts().snapshot;
        if (same->facts() == facts) {
            if (facts.kept)
                pool_.restore_from(same, snapshot);
            return same;
        }
        facts.snapshot = snapshot;
    }
    return make_version(std::move(facts));
}

// Makes the refresh the table in use.
void FunctionTable::put_in_place(Refresh& refresh) {
    routes_.change(refresh.changes);
    std::vector<std::shared_ptr<FunctionVersion>> adopted, retired, leaving;
    for (const auto& [before, after] : refresh.changes) {
        if (before)
            functions_.erase(before->function);
        if (after)
            functions_.emplace(after->function, after);
        for (const Share& share : after ? after->shares : std::vector<Share>())
            if (share.version && !has(before.get(), *share.version))
                adopted.push_back(share.version);
        for (const Share& share : before ? before->shares : std::vector<Share>())
            if (share.version && !has(after.get(), *share.version))
                (is_moving(after.get()) ? leaving : retired).push_back(share.version);
        if (!looked_ || (before && after && before->created == after->created)) // at first functions() tells all
            continue;
        if (before) {
            logs_.forget(before->function);
            changes_.emplace_back(Identity{before->function, before->created}, false);
        }
        if (after)
            changes_.emplace_back(Identity{after->function, after->created}, true);
    }
    size_ = functions_.size();
    for (const auto& version : adopted)
        if (!version->facts().given->moved)
            pool_.adopt(version);
        else if (!version->facts().given->moved->pending)
            pool_.forget_states(version); // the other daemon has them
    for (const auto& version : retired)
        pool_.retire(version, WorkerPool::States::are_forgotten);
    for (const auto& version : leaving)
        pool_.retire(version, WorkerPool::States::stay);
    if (!std::exchange(looked_, true)) // deleted while no daemon ran, or logged after the deletion
        for (const std::string& name : logs_.functions())
            if (!functions_.contains(name))
                logs_.forget(name);
    if (refresh.all)
        again_.clear();
    for (const std::string& name : refresh.read)
        again_.erase(name);
    again_.merge(refresh.failed);
    last_change_ = refresh.last_change;
    read_addresses(refresh.changes);
    note_faults(refresh);
}

void FunctionTable::read_addresses(const std::vector<RoutingTable::Change>& changes) {
    bool same = true;
    for (const auto& [before, after] : changes) {
        if (before)
            passing_.erase(before->function);
        if (after && std::ranges::any_of(after->shares, passes_tls))
            passing_.insert(after->function);
        if (before && tcp_functions_.erase(before->function) > 0)
            same = false;
        if (after && std::ranges::any_of(after->shares, has_addresses)) {
            tcp_functions_[after->function] = after;
            same = false;
        }
    }
    passes_tls_ = !passing_.empty();
    if (same)
        return;
    addresses_.clear();
    Faults faults;
    for (const auto& [name, place] : tcp_functions_) {
        std::map<ListenAddress, Destination> there;
        for (const Share& share : place->shares)
            if (has_addresses(share))
                for (const ListenAddress& address : share.version->facts().given->tcp->listen)
                    there[address].shares.push_back(share);
        for (auto& each : there) {
            const ListenAddress& address = each.first;
            Destination& one = each.second;
            one.function = name;
            one.created = place->created;
            const auto taken = std::ranges::find_if(addresses_, [&](const auto& other) {
                return other.second->function != one.function && other.first.overlaps(address);
            });
            if (taken == addresses_.end())
                addresses_[address] = std::make_shared<const Destination>(std::move(one));
            else
                faults[fmt::format("{} {}", name, address.text())] =
                    fmt::format("{} cannot listen on {}: {} does", name, address.text(), taken->second->function);
        }
    }
    for (const auto& [what, line] : faults)
        if (const auto old = address_faults_.find(what); old == address_faults_.end() || old->second != line)
            note_(line);
    address_faults_ = std::move(faults);
}

void FunctionTable::note_faults(Refresh& refresh) {
    std::map<std::string, Faults> before;
    for (auto known = faults_.begin(); known != faults_.end();) {
        const auto next = std::next(known);
        if (refresh.all || refresh.read.contains(known->first))
            before.insert(faults_.extract(known));
        known = next;
    }
    for (const auto& [function, faults] : refresh.faults)
        for (const auto& [what, line] : faults) {
            const Faults& said = before[function];
            if (const auto old = said.find(what); old == said.end() || old->second != line)
                note_(line);
        }
    faults_.merge(refresh.faults);
}

// The ceilings of whoever deployed it, and those that are in force now.
std::vector<Ceilings> FunctionTable::ceilings_of(const std::string& function, const store::ServedVersion& version,
                                                 const CeilingsFile& file) {
    std::vector<Ceilings> all = ceilings_from_text(version.ceilings.empty() ? "" : "[" + version.ceilings + "]");
    if (Ceilings now = file.of(function); now != Ceilings{})
        all.push_back(std::move(now));
    return all;
}

FunctionVersion::Facts FunctionTable::facts_of(const store::ServedFunction& function,
                                               const store::ServedVersion& version, const Secrets& secrets,
                                               const std::vector<Ceilings>& ceilings) {
    const FunctionSettings settings = function_settings(version.manifest);
    FunctionVersion::Facts facts;
    Claims claims;
    if (settings.tcp)
        claims.listen = settings.tcp->listen;
    for (const Ceilings& each : ceilings)
        for (const Excess& excess : claims_above(each, claims))
            if (excess.fatal) // an address cannot be clamped; nothing else is claimed here
                throw tinykvm::UserError(tinykvm::ExitCode::usage, fmt::format("it asks for more than is granted: {}",
                                                                               kvmserver::text_of({excess})));
    if (!settings.storage.empty() && !store::in_prefix(settings.storage, version.tenant))
        throw tinykvm::UserError(tinykvm::ExitCode::usage, fmt::format("its storage {} is not of the tenant {}",
                                                                       settings.storage, version.tenant));
    facts.function = function.name;
    facts.created = function.created;
    facts.version = version.number;
    facts.snapshot = version.snapshot;
    const Scale& scale = settings.scale;
    facts.min = scale.min;
    facts.max = scale.max.value_or(std::max(defaults_.machines, scale.min));
    facts.queue = scale.queue.value_or(kQueue);
    for (const Ceilings& each : ceilings) {
        facts.max = static_cast<unsigned>(std::min<std::uint64_t>(facts.max, each.machines.value_or(facts.max)));
        facts.min = static_cast<unsigned>(std::min<std::uint64_t>(facts.min, each.kept_machines.value_or(facts.min)));
        facts.queue = static_cast<unsigned>(std::min<std::uint64_t>(facts.queue, each.queue.value_or(facts.queue)));
    }
    facts.min = std::min(facts.min, facts.max);
    if (facts.kept = settings.kept; facts.kept) {
        // All of them run all the time, or none if that is not granted.
        facts.machines = facts.min == 0 ? facts.max : facts.min;
        facts.suspends = settings.suspend;
        facts.min = facts.min > 0 && !settings.suspend;
        facts.max = settings.concurrency;
    }
    facts.idle_ns = scale.idle_ns.value_or(defaults_.idle_ns);
    if (facts.suspends)
        facts.linger_ns = scale.linger_ns.value_or(std::min(facts.idle_ns, kLongestLinger));
    facts.queue_ns = scale.queue_ns;
    if (!facts.kept)
        facts.rest_after_ms = whole_milliseconds(scale.rest_ns.value_or(facts.min == 0 ? defaults_.rest_ns : 0));
    std::vector<std::string> own;
    for (const auto& [name, value] : function.secrets)
        own.push_back(name);
    Given given{settings.after_restore,
                settings.before_snapshot,
                settings.tcp,
                settings.sticky,
                values_of(settings, function.env, secrets_of(function, version, secrets), own),
                ceilings_text(ceilings),
                defaults_.share_across_tenants ? "" : version.tenant,
                settings.storage,
                function.moved};
    if (*last_given_ != given)
        last_given_ = SharedGiven(std::move(given));
    facts.given = last_given_;
    return facts;
}

std::shared_ptr<FunctionVersion> FunctionTable::make_version(FunctionVersion::Facts facts) {
    auto requests = logs_.requests().find(facts.function, facts.created);
    FunctionVersion::Others others;
    for (unsigned machine = 2; machine <= facts.machines; ++machine) {
        FunctionVersion::Facts other = facts;
        other.machine = machine;
        others.push_back(std::make_shared<FunctionVersion>(std::move(other), requests));
    }
    return std::make_shared<FunctionVersion>(std::move(facts), std::move(requests), std::move(others));
}

std::optional<std::vector<std::shared_ptr<FunctionVersion>>> FunctionTable::live(const std::string& function) const {
    const std::lock_guard lock(mutex_);
    const Place place = place_of(function);
    if (!place)
        return std::nullopt;
    std::vector<std::shared_ptr<FunctionVersion>> versions;
    for (const Share& share : place->shares)
        if (share.version)
            versions.push_back(share.version);
    return versions;
}

std::shared_ptr<FunctionVersion> FunctionTable::version(const std::string& function, std::uint64_t version) {
    const std::lock_guard lock(mutex_);
    if (auto live = share_of(place_of(function).get(), version))
        return live;
    const store::VersionInfo info = store::Functions(store_).version(function, version);
    if (info.state == store::VersionState::pending)
        throw store::Conflict(fmt::format("{} v{} is on its way from another daemon", function, version));
    auto made = read_version(function, info);
    pool_.retire(made, WorkerPool::States::are_forgotten); // its process ends after the request
    return made;
}

std::shared_ptr<const FunctionVersion> FunctionTable::described(const std::string& function, std::uint64_t version) {
    const std::lock_guard lock(mutex_);
    return read_version(function, store::Functions(store_).version(function, version));
}

std::shared_ptr<FunctionVersion> FunctionTable::read_version(const std::string& function,
                                                             const store::VersionInfo& info) {
    const store::ServedVersion served_version{info.number,   info.percent, info.snapshot,
                                              info.manifest, info.tenant,  info.ceilings};
    FunctionVersion::Facts facts;
    {
        const store::Served served(store_);
        const auto found = served.find(function);
        if (!found)
            throw store::NotFound(fmt::format("{} was deleted", function));
        facts = facts_of(*found, served_version, served.shared_secrets(),
                         ceilings_of(function, served_version, *ceilings_()));
    }
    return make_version(std::move(facts));
}

FunctionTable::Place FunctionTable::place_of(std::string_view function) const {
    const auto found = functions_.find(function);
    return found == functions_.end() ? nullptr : found->second;
}

std::map<std::pair<std::string, std::uint64_t>, FunctionTable::LiveVersion> FunctionTable::shares() const {
    const std::lock_guard lock(mutex_);
    std::map<std::pair<std::string, std::uint64_t>, LiveVersion> all;
    for (const auto& [name, place] : functions_)
        for (const Share& share : place->shares)
            if (share.version)
                all[{place->function, share.version->facts().version}] = {share.percent,
                                                                          share.version->facts().suspends};
    return all;
}

std::shared_ptr<const Destination> FunctionTable::passing(std::string_view host) const {
    auto found = routes_.find(host, "/");
    return found && std::ranges::any_of(found->shares, kvmserver::daemon::passes_tls) ? found : nullptr;
}

std::shared_ptr<const Destination> FunctionTable::named(const std::string& function) const {
    const std::lock_guard lock(mutex_);
    return place_of(function);
}

TcpTable FunctionTable::addresses() const {
    const std::lock_guard lock(mutex_);
    return addresses_;
}

std::optional<unsigned> FunctionTable::share(const std::string& function, std::uint64_t version) const {
    const std::lock_guard lock(mutex_);
    if (const Place place = place_of(function))
        for (const Share& share : place->shares)
            if (share.version && share.version->facts().version == version)
                return share.percent;
    return std::nullopt;
}

std::vector<FunctionTable::Identity> FunctionTable::functions() const {
    const std::lock_guard lock(mutex_);
    changes_ = {};
    std::vector<Identity> all;
    all.reserve(functions_.size());
    for (const auto& [name, place] : functions_)
        all.emplace_back(place->function, place->created);
    return all;
}

std::vector<std::pair<FunctionTable::Identity, bool>> FunctionTable::changes() const {
    const std::lock_guard lock(mutex_);
    return std::exchange(changes_, {});
}

} // namespace kvmserver::daemon
