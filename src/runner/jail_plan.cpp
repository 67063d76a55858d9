#include "src/runner/jail_plan.hpp"

#include <string_view>

namespace kvmserver {

using tinykvm::NetRule;

jail::Plan jail_plan(const tinykvm::Permissions& permissions, const std::string& cwd) {
    jail::Plan plan;
    // What a function listens on is the daemon's: its clients come by way of that.
    plan.network = permissions.all || !permissions.connect.empty();
    if (permissions.all)
        jail::add_place(plan, "/", true);
    for (const std::string& path : permissions.implied_read)
        jail::add_place(plan, path, false);
    for (const std::string& path : permissions.read)
        jail::add_place(plan, path, false);
    for (const std::string& path : permissions.write)
        jail::add_place(plan, path, true);
    for (const tinykvm::Volume& volume : permissions.volumes)
        jail::add_place(plan, volume.host, volume.write);
    for (const NetRule& rule : permissions.listen) {
        if (!rule.host.starts_with(tinykvm::kUnixRule))
            continue;
        const std::string name = rule.host.substr(std::string_view(tinykvm::kUnixRule).size());
        if (name.starts_with('/'))
            jail::add_place(plan, name, true);
    }
    if (cwd.starts_with('/'))
        plan.folders.push_back(cwd);
    return plan;
}

} // namespace kvmserver
