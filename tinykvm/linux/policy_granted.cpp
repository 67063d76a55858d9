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
    Ceiling ceiling;
    ceiling.granted = granted;
    if (granted.connect)
        ceiling.connect = NetGrants(*granted.connect);
    if (granted.listen)
        ceiling.listen = NetGrants(*granted.listen);
    if (granted.deny_connect)
        ceiling.deny_connect = NetGrants(*granted.deny_connect);
    ceiling.has_paths = granted.read || granted.write;
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
        add_granted_path(ceiling, "/", kReadRule);
    for (const std::string& path : read)
        if (!within(path)) // without a ceiling for writing, that for reading applies
            add_granted_path(ceiling, path, granted.write ? kReadRule : kWriteRule);
    for (const std::string& path : write)
        if (!within(path))
            add_granted_path(ceiling, path, kWriteRule);
    if (granted.volumes)
        for (const Volume& volume : *granted.volumes) {
            ceiling.volumes.push_back(volume);
            if (Volume real = volume; (real.host = walk(volume.host, true, {}).path) != volume.host)
                ceiling.volumes.push_back(std::move(real));
        }
    if (granted.listen)
        for (const NetGrant& each : *granted.listen)
            if (each.kind == NetGrant::Kind::unix_path)
                add_granted_path(ceiling, each.name, kWriteRule);
    ceilings_.push_back(std::move(ceiling));
}

void Policy::add_granted_path(Ceiling& ceiling, const std::string& path, Rights rights) {
    const Walk found = walk(path, true, {});
    ceiling.rules.add(found.path, rights);
    for (const std::string& link : found.links)
        ceiling.rules.add_lookup(link);
}

Rights Policy::rights_of(std::string_view path) const {
    if (is_hidden(path))
        return 0;
    Rights rights = rules_.of(path);
    for (const Ceiling& ceiling : ceilings_)
        if (ceiling.has_paths)
            rights &= ceiling.rules.of(path);
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
    for (const Ceiling& ceiling : ceilings_) {
        Rights here = ceiling.granted.volumes || !ceiling.has_paths ? 0 : ceiling.rules.of(host);
        for (const Volume& each : ceiling.volumes)
            if (is_beneath(host, each.host))
                here |= rights_in(each);
        if (ceiling.granted.volumes || ceiling.has_paths)
            rights &= here;
    }
    return rights;
}

} // namespace tinykvm
