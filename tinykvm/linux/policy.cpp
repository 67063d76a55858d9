#include "tinykvm/linux/policy.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>

#include "tinykvm/base/error.hpp"
#include "tinykvm/linux/path_text.hpp"
#include "tinykvm/linux/policy_walk.hpp"

namespace tinykvm {

Policy::Policy(Permissions permissions, ProgramFacts facts)
    : permissions_(std::move(permissions)), facts_(std::move(facts)), synthetic_(facts_),
      connect_(permissions_.connect, warnings_), listen_(permissions_.listen, warnings_) {
    add_volumes();
    if (permissions_.all) {
        rules_.add("/", kWriteRule);
        std::vector<std::string> none;
        connect_ = listen_ = NetRules({NetRule{}}, none);
    }
    for (const std::string& path : permissions_.read)
        add_rule(path, kReadRule);
    for (const std::string& path : permissions_.implied_read)
        add_rule(path, kReadRule);
    for (const std::string& path : permissions_.write)
        add_rule(path, kWriteRule);
    for (const std::string& device : SyntheticFiles::free_devices())
        rules_.add(device, kLookup | kRead | kWrite);
    for (const std::string& path : SyntheticFiles::file_paths())
        rules_.add_lookup(path);
    add_lookup(facts_.cwd);
}

void Policy::add_volumes() {
    // Outer ones first: the guest path of an inner one is canonical only then.
    std::vector<Volume> volumes = permissions_.volumes;
    std::stable_sort(volumes.begin(), volumes.end(),
                     [](const Volume& a, const Volume& b) { return a.guest.size() < b.guest.size(); });
    for (const Volume& volume : volumes) {
        if (!volume.guest.starts_with('/'))
            throw UserError(ExitCode::usage, fmt::format("--volume={}:{}: the guest path must start with '/'",
                                                         volume.host, volume.guest));
        const Walk found = walk(volume.guest, true, {});
        tree_.mount(volume, found.path);
        const Rights rights = (volume.read ? kLookup | kRead : 0) |
                              (volume.write ? kLookup | kRead | kWrite | kChange : 0) |
                              (volume.execute ? kLookup | kExecute : 0);
        rules_.add_volume(found.path, rights);
        for (const std::string& link : found.links)
            rules_.add_lookup(link);
    }
}

void Policy::add_rule(const std::string& path, Rights rights) {
    if (!path.starts_with('/'))
        throw UserError(ExitCode::usage, fmt::format("permission for \"{}\": the path must be absolute", path));
    const Walk found = walk(path, true, {});
    rules_.add(found.path, rights);
    for (const std::string& link : found.links)
        rules_.add_lookup(link);
}

void Policy::add_lookup(const std::string& path) {
    const Walk found = walk(path, true, {});
    rules_.add_lookup(found.path);
    for (const std::string& link : found.links)
        rules_.add_lookup(link);
}

int Policy::check(const std::string& path, Rights need, std::string& refused) const {
    const Rights have = rights_of(path);
    const Rights lacking = need & ~have;
    if (lacking == 0)
        return 0;
    const bool change = (need & (kWrite | kChange)) != 0;
    if (const Volume* volume = tree_.volume_of(path); volume && (have & kLookup))
        refused = fmt::format("--volume={}:{}:{} would allow it", volume->host, volume->guest, change ? "rw" : "rx");
    else
        refused = fmt::format("--allow-{}={} would allow it", change ? "write" : "read", path);
    return !(have & kLookup) && !change ? ENOENT : EACCES;
}

bool Policy::may_connect(const sockaddr* address, socklen_t length) const {
    auto target = net_address(address, length);
    if (!target)
        return false;
    // Linux connects to the loopback when asked for the wildcard.
    if (target->is_any()) {
        if (target->is_ipv4())
            target->bytes[12] = 127;
        target->bytes[15] = 1;
    }
    return connect_.allows(*target);
}

bool Policy::may_listen(const sockaddr* address, socklen_t length) const {
    const auto local = net_address(address, length);
    return local && listen_.allows(*local);
}

std::string Policy::net_flag(const char* flag, const sockaddr* address, socklen_t length) {
    const auto target = net_address(address, length);
    return fmt::format("{}={}", flag, target ? target->text() : "");
}

} // namespace tinykvm
