// The operator's ceilings, as rules beside those of the permissions.
#include <algorithm>

#include "tinykvm/base/path_text.hpp"
#include "tinykvm/linux/policy_walk.hpp"

namespace tinykvm {

Rights Policy::rights_in(const Volume& volume) {
    return (volume.read ? kLookup | kRead : 0) | (volume.write ? kLookup | kRead | kWrite | kChange : 0) |
           (volume.execute ? kLookup | kExecute : 0);
}

void Policy::add_granted(const Granted& granted) {
    Most most;
    most.granted = granted;
    if (granted.connect)
        most.connect = NetGrants(*granted.connect);
    if (granted.listen)
        most.listen = NetGrants(*granted.listen);
    if (granted.deny_connect)
        most.deny_connect = NetGrants(*granted.deny_connect);
    most.has_paths = granted.read || granted.write;
    const std::vector<std::string> none;
    const std::vector<std::string>&read = granted.read ? *granted.read : none,
          &write = granted.write ? *granted.write : none;
    // Paths beneath a writable folder are already granted by it. They must not be resolved: a name there may be a link
    // made by the program.
    const auto within = [&](const std::string& path) {
        return std::ranges::any_of(
            write, [&](const std::string& folder) { return path != folder && is_beneath(path, folder); });
    };
    if (!granted.read)
        add_granted_path(most, "/", kReadRule);
    for (const std::string& path : read)
        if (!within(path)) // without a ceiling for writing, that for reading applies
            add_granted_path(most, path, granted.write ? kReadRule : kWriteRule);
    for (const std::string& path : write)
        if (!within(path))
            add_granted_path(most, path, kWriteRule);
    if (granted.volumes)
        for (const Volume& volume : *granted.volumes) {
            most.volumes.push_back(volume);
            if (Volume real = volume; (real.host = walk(volume.host, true, {}).path) != volume.host)
                most.volumes.push_back(std::move(real));
        }
    if (granted.listen)
        for (const NetGrant& each : *granted.listen)
            if (each.kind == NetGrant::Kind::unix_path)
                add_granted_path(most, each.name, kWriteRule);
    most_.push_back(std::move(most));
}

void Policy::add_granted_path(Most& most, const std::string& path, Rights rights) {
    const Walk found = walk(path, true, {});
    most.rules.add(found.path, rights);
    for (const std::string& link : found.links)
        most.rules.add_lookup(link);
}

Rights Policy::rights_of(std::string_view path) const {
    if (is_hidden(path))
        return 0;
    Rights rights = rules_.of(path);
    for (const Most& most : most_)
        if (most.has_paths)
            rights &= most.rules.of(path);
    return rights;
}

bool Policy::is_hidden(std::string_view path) const {
    if (hidden_.empty())
        return false;
    const Volume* const volume = tree_.volume_of(path);
    const std::string in_volume =
        volume ? volume->host + std::string(path.substr(std::min(path.size(), volume->guest.size()))) : "";
    return std::any_of(hidden_.begin(), hidden_.end(), [&](const std::string& hidden) {
        return is_beneath(volume ? std::string_view(in_volume) : path, hidden);
    });
}

Rights Policy::granted_of_volume(const std::string& host, Rights rights) const {
    for (const Most& most : most_) {
        Rights here = most.granted.volumes || !most.has_paths ? 0 : most.rules.of(host);
        for (const Volume& each : most.volumes)
            if (is_beneath(host, each.host))
                here |= rights_in(each);
        if (most.granted.volumes || most.has_paths)
            rights &= here;
    }
    return rights;
}

} // namespace tinykvm
