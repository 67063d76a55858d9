#include "src/daemon/routing.hpp"

#include <algorithm>
#include <mutex>
#include <random>
#include <utility>

namespace kvmserver::daemon {
namespace {

// "/a" matches /a, /a/b and /a?b, not /ab; "/a/" matches everything below it.
bool path_matches(std::string_view prefix, std::string_view path) {
    if (!path.starts_with(prefix))
        return false;
    return prefix.ends_with('/') || path.size() == prefix.size() || path[prefix.size()] == '/' ||
           path[prefix.size()] == '?';
}

// "*.x": ".x".
std::string_view key_of(std::string_view pattern) { return pattern.starts_with("*.") ? pattern.substr(1) : pattern; }

} // namespace

const RoutingTable::Paths::Entry* RoutingTable::Paths::find(std::string_view path) const {
    if (!many_)
        return one_.to && one_.path == path ? &one_ : nullptr;
    const auto found = many_->find(path);
    return found == many_->end() ? nullptr : &*found;
}

// Of several: what is a prefix of `path`, and not longer than `rest`, is a prefix of each string between itself and
// `rest` too: also of the last one before `rest`.
const RoutingTable::Paths::Entry* RoutingTable::Paths::longest_match(std::string_view path) const {
    if (!many_)
        return one_.to && path_matches(one_.path, path) ? &one_ : nullptr;
    for (std::string_view rest = path;;) {
        auto at = many_->upper_bound(rest);
        if (at == many_->begin())
            return nullptr;
        const std::string_view last = (--at)->path;
        if (path_matches(last, path))
            return &*at;
        const auto common =
            static_cast<std::size_t>(std::ranges::mismatch(last, rest).in1 - last.begin()); // of the beginnings
        if (common == 0)
            return nullptr;
        rest = path.substr(0, common < last.size() ? common : common - 1);
    }
}

// The path is replaced as well: the former one is in another destination.
void RoutingTable::Paths::put(Entry entry) {
    erase(entry.path);
    if (empty()) {
        one_ = std::move(entry);
        return;
    }
    if (!many_) {
        many_ = std::make_unique<std::set<Entry, ByPath>>();
        many_->insert(std::exchange(one_, {}));
    }
    many_->insert(std::move(entry));
}

void RoutingTable::Paths::erase(std::string_view path) {
    if (!many_) {
        if (one_.to && one_.path == path)
            one_ = {};
        return;
    }
    if (const auto found = many_->find(path); found != many_->end())
        many_->erase(found);
    if (many_->empty())
        many_.reset();
}

std::shared_ptr<FunctionVersion> version_by_share(const Destination& destination) {
    if (destination.shares.empty())
        return nullptr;
    if (destination.shares.size() == 1)
        return destination.shares.front().version;
    thread_local std::minstd_rand random(std::random_device{}());
    return version_by_share(destination, random());
}

std::shared_ptr<FunctionVersion> version_by_share(const Destination& destination, std::uint64_t number) {
    unsigned all = 0;
    for (const Share& share : destination.shares)
        all += share.percent;
    auto at = static_cast<unsigned>(number % std::max(all, 1u));
    for (const Share& share : destination.shares) {
        if (at < share.percent)
            return share.version;
        at -= share.percent;
    }
    return nullptr;
}

void RoutingTable::remove(const std::shared_ptr<const Destination>& destination) {
    for (const store::Route& route : destination->routes) {
        Hosts& hosts = hosts_for(route.host);
        const auto host = hosts.find(key_of(route.host));
        if (host == hosts.end())
            continue;
        const Paths::Entry* const entry = host->second.find(route.path);
        if (!entry || entry->to != destination) // another function has it by now
            continue;
        host->second.erase(route.path);
        if (host->second.empty())
            hosts.erase(host);
    }
}

void RoutingTable::add(const std::shared_ptr<const Destination>& destination) {
    for (const store::Route& route : destination->routes) {
        Hosts& hosts = hosts_for(route.host);
        auto host = hosts.find(key_of(route.host));
        if (host == hosts.end())
            host = hosts.emplace(key_of(route.host), Paths()).first;
        host->second.put({route.path, destination});
    }
}

void RoutingTable::change(std::span<const Change> changes) {
    const std::unique_lock lock(mutex_);
    for (const Change& change : changes)
        if (change.before)
            remove(change.before);
    for (const Change& change : changes)
        if (change.after)
            add(change.after);
}

std::shared_ptr<const Destination> RoutingTable::find(std::string_view host, std::string_view path,
                                                      const store::Route** route) const {
    const std::shared_lock lock(mutex_);
    const auto within = [&](const Hosts& hosts, std::string_view key) -> std::shared_ptr<const Destination> {
        const auto paths = hosts.find(key);
        const Paths::Entry* const found = paths == hosts.end() ? nullptr : paths->second.longest_match(path);
        if (!found)
            return nullptr;
        if (route)
            *route = &*std::ranges::find_if(found->to->routes, [&](const store::Route& each) {
                return each.path.data() == found->path.data(); // it is in it
            });
        return found->to;
    };
    if (auto found = host.empty() ? nullptr : within(exact_, host))
        return found;
    // The longest first.
    for (auto dot = wild_.empty() ? host.npos : host.find('.', 1); dot != host.npos; dot = host.find('.', dot + 1))
        if (auto found = within(wild_, host.substr(dot)))
            return found;
    return within(exact_, "");
}

} // namespace kvmserver::daemon
