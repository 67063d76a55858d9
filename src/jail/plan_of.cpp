#include "src/jail/plan_of.hpp"

#include <algorithm>
#include <string_view>

#include "tinykvm/base/path_text.hpp"

namespace kvmserver::jail {

using tinykvm::NetRule;

Plan plan_of(const tinykvm::Permissions& permissions, const std::string& cwd) {
    Plan plan;
    // Listening needs no network in the jail: listeners of the image are opened before, or belong to the daemon.
    plan.network = plan.connect = permissions.all || !permissions.connect.empty();
    if (permissions.all)
        add_place(plan, "/", true);
    for (const std::string& path : permissions.implied_read)
        add_place(plan, path, false);
    for (const std::string& path : permissions.read)
        add_place(plan, path, false);
    for (const std::string& path : permissions.write)
        add_place(plan, path, true);
    for (const tinykvm::Volume& volume : permissions.volumes)
        add_place(plan, volume.host, volume.write);
    for (const NetRule& rule : permissions.listen) {
        if (!rule.host.starts_with(tinykvm::kUnixRule))
            continue;
        const std::string name = rule.host.substr(std::string_view(tinykvm::kUnixRule).size());
        if (name.starts_with('/'))
            add_place(plan, name, true);
    }
    if (cwd.starts_with('/'))
        plan.folders.push_back(cwd);
    const auto is_abstract = [](const NetRule& rule) {
        return rule.host.starts_with(std::string(tinykvm::kUnixRule) + "@");
    };
    const auto has_proc = [](const Place& place) {
        return place.path == "/" || tinykvm::is_beneath(place.path, "/proc");
    };
    plan.own_network =
        std::ranges::any_of(permissions.listen, is_abstract) || std::ranges::any_of(plan.places, has_proc);
    return plan;
}

} // namespace kvmserver::jail
