#include "src/cluster/cluster_index.hpp"

#include <fmt/format.h>

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

std::optional<store::SharedEntry> ClusterIndex::get(const std::string& key) {
    auto entry = try_to([&] { return client_.get(key); });
    return entry ? std::optional(opened(*std::move(entry))) : std::nullopt;
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
        then.push_back({change.key, change.value && !store::is_plain(change.key)
                                        ? std::optional(seal_.seal(*change.value, change.key))
                                        : change.value});
    const etcd::Done done = try_to([&] { return client_.change(if_all, then); });
    return done.applied ? std::optional(done.revision) : std::nullopt;
}

std::string ClusterIndex::name() const { return client_.address().text(); }

} // namespace kvmserver::cluster
