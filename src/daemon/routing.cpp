#include "src/daemon/routing.hpp"

#include <algorithm>
#include <random>

namespace kvmserver::daemon {
namespace {

bool host_matches(std::string_view pattern, std::string_view host) {
    if (pattern.empty())
        return true;
    if (!pattern.starts_with("*."))
        return pattern == host;
    const std::string_view below = pattern.substr(1); // ".x"
    return host.size() > below.size() && host.ends_with(below);
}

// How specific a host pattern is: exact hosts first, then by length.
std::size_t weight(std::string_view pattern) {
    return pattern.empty() ? 0 : pattern.starts_with("*.") ? pattern.size() : 1000 + pattern.size();
}

// "/a" matches /a, /a/b and /a?b, not /ab; "/a/" matches everything below it.
bool path_matches(std::string_view prefix, std::string_view path) {
    if (!path.starts_with(prefix))
        return false;
    return prefix.ends_with('/') || path.size() == prefix.size() || path[prefix.size()] == '/' ||
           path[prefix.size()] == '?';
}

} // namespace

std::shared_ptr<FunctionVersion> version_by_share(const Destination& destination) {
    if (destination.shares.empty())
        return nullptr;
    if (destination.shares.size() == 1)
        return destination.shares.front().version;
    thread_local std::minstd_rand random(std::random_device{}());
    unsigned all = 0;
    for (const Share& share : destination.shares)
        all += share.percent;
    unsigned at = std::uniform_int_distribution<unsigned>(0, std::max(all, 1u) - 1)(random);
    for (const Share& share : destination.shares) {
        if (at < share.percent)
            return share.version;
        at -= share.percent;
    }
    return nullptr;
}

void RoutingTable::add(const store::Route& route, std::shared_ptr<const Destination> destination) {
    entries_.push_back({route, std::move(destination)});
}

void RoutingTable::sort() {
    std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
        return std::pair(weight(a.route.host), a.route.path.size()) >
               std::pair(weight(b.route.host), b.route.path.size());
    });
}

const Destination* RoutingTable::find(std::string_view host, std::string_view path, const store::Route** route) const {
    for (const Entry& entry : entries_)
        if (host_matches(entry.route.host, host) && path_matches(entry.route.path, path)) {
            if (route)
                *route = &entry.route;
            return entry.destination.get();
        }
    return nullptr;
}

} // namespace kvmserver::daemon
