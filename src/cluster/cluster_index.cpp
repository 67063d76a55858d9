#include "src/cluster/cluster_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "src/store/errors.hpp"
#include "src/store/shared/documents.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::cluster {

namespace {

using tinykvm::ExitCode;
using tinykvm::UserError;

constexpr std::chrono::seconds kAway{1};
constexpr std::int64_t kPage = 1000; // entries of a reply
constexpr int kSchema = 1;           // of what the entries hold

} // namespace

ClusterIndex::ClusterIndex(etcd::Address address, etcd::Credentials credentials, Seal seal)
    : client_(std::move(address), std::move(credentials)), seal_(seal) {}

template <class Action>
auto ClusterIndex::try_to(const Action& action) {
    {
        const std::lock_guard lock(mutex_);
        if (!away_.empty() && Clock::now() < away_until_)
            throw store::IndexAway(away_);
    }
    try {
        return action();
    } catch (const etcd::Away& error) {
        const std::lock_guard lock(mutex_);
        away_ = error.what();
        away_until_ = Clock::now() + kAway;
        throw store::IndexAway(error.maybe_done ? away_ + "; whether the change was made is not known: look before you "
                                                          "repeat it"
                                                : away_);
    } catch (const etcd::Refused& error) {
        const std::string_view what = error.what();
        if (what.find("too large") != what.npos || what.find("too many operations") != what.npos)
            throw store::Conflict(fmt::format("{}; a function's versions or routes are too many for it: remove old "
                                              "versions with `kvmserver gc --keep N`, or some routes",
                                              what));
        throw store::IndexAway(error.what());
    }
}

store::SharedEntry ClusterIndex::opened(etcd::Entry entry) const {
    if (store::is_plain(entry.key))
        return {std::move(entry.key), std::move(entry.value), entry.changed};
    auto text = seal_.open(entry.value, entry.key);
    if (!text)
        throw UserError(ExitCode::conflict,
                        fmt::format("{}: {} was not sealed with the key of --cluster-key, or it is altered: give all "
                                    "daemons of the cluster the same key",
                                    name(), tinykvm::brief(entry.key)));
    return {std::move(entry.key), *std::move(text), entry.changed};
}

std::string ClusterIndex::sealed(const std::string& key, const std::string& value) const {
    return store::is_plain(key) ? value : seal_.seal(value, key);
}

std::optional<store::SharedEntry> ClusterIndex::read(const std::string& key) {
    auto entry = try_to([&] { return client_.get(key); });
    return entry ? std::optional(opened(*std::move(entry))) : std::nullopt;
}

std::string ClusterIndex::id_in(const store::SharedEntry& entry) const {
    const auto json = nlohmann::json::parse(entry.value, nullptr, false);
    if (!json.is_object() || !json.contains("id") || !json["id"].is_string() || !json.contains("schema") ||
        !json["schema"].is_number_integer())
        throw UserError(ExitCode::failure,
                        fmt::format("{}: its entry \"cluster\" makes no sense: restore a backup of it", name()));
    if (const auto schema = json["schema"].get<std::int64_t>(); schema > kSchema)
        throw UserError(ExitCode::conflict,
                        fmt::format("{}: a newer kvmserver has changed the form of this cluster (it is {}, this one "
                                    "knows {}): install that version here, too",
                                    name(), schema, kSchema));
    return json["id"].get<std::string>();
}

std::optional<std::string> ClusterIndex::id() {
    const auto entry = read(kClusterKey);
    return entry ? std::optional(id_in(*entry)) : std::nullopt;
}

std::string ClusterIndex::id_or(const std::string& made) {
    const etcd::Condition none{etcd::Condition::Of::created, kClusterKey, 0};
    const std::string text = nlohmann::json{{"id", made}, {"schema", kSchema}}.dump();
    const etcd::Change change{kClusterKey, seal_.seal(text, kClusterKey)};
    (void)try_to([&] { return client_.change({&none, 1}, {&change, 1}); }); // or another daemon was faster
    return id().value_or(made);
}

void ClusterIndex::belong_to(const std::string& id) {
    const std::lock_guard lock(mutex_);
    id_ = id;
}

void ClusterIndex::require_cluster() {
    std::string ours;
    {
        const std::lock_guard lock(mutex_);
        ours = id_;
    }
    if (ours.empty())
        return;
    const auto entry = read(kClusterKey);
    if (!entry)
        throw UserError(ExitCode::conflict,
                        fmt::format("{} has lost the cluster to which this store belongs: restore etcd from its "
                                    "backup; to begin a new cluster with this store's functions, stop this daemon and "
                                    "remove the file \"cluster\" in the store",
                                    name()));
    if (id_in(*entry) != ours)
        throw UserError(ExitCode::conflict,
                        fmt::format("{} has another cluster than the one to which this store belongs: give the address "
                                    "and prefix of that, or another --store",
                                    name()));
    const std::lock_guard lock(mutex_);
    revision_ = entry->revision;
}

void ClusterIndex::note_verified(std::int64_t revision) {
    const std::lock_guard lock(mutex_);
    verified_ = std::max(verified_, revision);
}

// Of the entry with the cluster's id, for a condition; 0: any.
std::int64_t ClusterIndex::cluster_revision() {
    const auto known = [this] {
        const std::lock_guard lock(mutex_);
        return id_.empty() ? std::optional<std::int64_t>(0) : revision_ != 0 ? std::optional(revision_) : std::nullopt;
    };
    if (const auto revision = known())
        return *revision;
    require_cluster();
    return known().value_or(0);
}

std::optional<store::SharedEntry> ClusterIndex::get(const std::string& key) {
    auto entry = read(key);
    if (!entry) {
        require_cluster(); // else it may be missing only because everything is
        return entry;
    }
    bool is_new = false;
    {
        const std::lock_guard lock(mutex_);
        is_new = entry->revision > verified_;
    }
    if (is_new) { // it may be of a form that is not known here
        require_cluster();
        note_verified(entry->revision);
    }
    return entry;
}

std::int64_t ClusterIndex::list(const std::function<void(store::SharedEntry)>& take) {
    std::int64_t revision = 0;
    std::string after;
    for (bool more = true; more;) {
        etcd::Found found = try_to([&] { return client_.range("", after, kPage, etcd::Values::without); });
        // What changed since the first page is told by the watch that begins there.
        revision = revision == 0 ? found.revision : revision;
        more = found.more && !found.entries.empty();
        if (more)
            after = found.entries.back().key;
        for (etcd::Entry& entry : found.entries)
            take({std::move(entry.key), "", entry.changed});
    }
    require_cluster();
    note_verified(revision);
    return revision;
}

std::optional<std::int64_t> ClusterIndex::change(std::span<const store::SharedCondition> conditions,
                                                 std::span<const store::SharedChange> changes) {
    std::vector<etcd::Condition> if_all;
    for (const store::SharedCondition& condition : conditions)
        if (condition.value)
            if_all.push_back({etcd::Condition::Of::value, condition.key, 0, *condition.value});
        else
            if_all.push_back({etcd::Condition::Of::changed, condition.key, condition.revision});
    std::vector<etcd::Change> then;
    for (const store::SharedChange& change : changes)
        then.push_back({change.key, change.value ? std::optional(sealed(change.key, *change.value)) : std::nullopt});
    if (const std::int64_t revision = cluster_revision(); revision != 0)
        if_all.push_back({etcd::Condition::Of::changed, kClusterKey, revision});
    const etcd::Done done = try_to([&] { return client_.change(if_all, then); });
    if (done.applied)
        note_verified(done.revision); // the entry with the id was a condition
    else
        require_cluster();
    return done.applied ? std::optional(done.revision) : std::nullopt;
}

ClusterIndex::Lease::~Lease() {
    if (abandoned_)
        return;
    try {
        index_.try_to([&] { index_.client_.revoke_lease(id_); });
    } catch (const UserError&) { // it ends by itself
    }
}

bool ClusterIndex::Lease::keep() {
    return index_.try_to([&] { return index_.client_.keep_lease(id_); });
}

std::unique_ptr<ClusterIndex::Lease> ClusterIndex::lease(std::int64_t seconds) {
    return std::make_unique<Lease>(*this, try_to([&] { return client_.grant_lease(seconds); }));
}

void ClusterIndex::put(const std::string& key, const std::string& value, const Lease& lease) {
    const etcd::Condition ours{etcd::Condition::Of::changed, kClusterKey, cluster_revision()};
    const etcd::Change change{key, sealed(key, value), lease.id()};
    if (try_to([&] { return client_.change({&ours, 1}, {&change, 1}).applied; }))
        return;
    require_cluster();
    throw store::IndexAway("the entry of the cluster was written anew at this moment");
}

std::vector<store::SharedEntry> ClusterIndex::entries(const std::string& prefix) {
    std::vector<store::SharedEntry> entries;
    std::string after;
    for (bool more = true; more;) {
        etcd::Found found = try_to([&] { return client_.range(prefix, after, kPage, etcd::Values::with); });
        more = found.more && !found.entries.empty();
        if (more)
            after = found.entries.back().key;
        for (etcd::Entry& entry : found.entries)
            entries.push_back(opened(std::move(entry)));
    }
    if (entries.empty())
        require_cluster();
    return entries;
}

// Its key is deleted with the lease.
class ClusterIndex::Lock final : public store::SharedLock {
public:
    explicit Lock(std::unique_ptr<Lease> lease) : lease_(std::move(lease)) {}
    bool held() override { return lease_->keep(); }
    void abandon() override { lease_->abandon(); }

private:
    const std::unique_ptr<Lease> lease_;
};

std::unique_ptr<store::SharedLock> ClusterIndex::try_lock(const std::string& key) {
    const std::int64_t revision = cluster_revision();
    auto lease = this->lease(store::kLockSeconds);
    const etcd::Condition conditions[] = {{etcd::Condition::Of::created, key, 0},
                                          {etcd::Condition::Of::changed, kClusterKey, revision}};
    const etcd::Change change{key, "", lease->id()};
    if (try_to([&] { return client_.change(conditions, {&change, 1}).applied; }))
        return std::make_unique<Lock>(std::move(lease));
    require_cluster(); // that may be the reason
    return nullptr;
}

std::string ClusterIndex::name() const { return client_.address().text(); }

} // namespace kvmserver::cluster
