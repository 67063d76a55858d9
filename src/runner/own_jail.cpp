#include "src/runner/own_jail.hpp"

#include <fmt/format.h>

#include <string>

#include "src/jail/plan_of.hpp"
#include "src/setup/report.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

// The socket's file is removed at exit, which needs write access to its folder.
void keep_folder_of(jail::Plan& plan, const std::string& address) {
    const std::string path = address.substr(std::string_view(kUnixRule).size());
    if (path.starts_with('/'))
        jail::add_place(plan, path.substr(0, std::max<std::size_t>(1, path.rfind('/'))), true);
}

// Adds what the other plan leaves open.
void add_plan(jail::Plan& plan, const jail::Plan& other) {
    plan.network |= other.network;
    plan.connect |= other.connect;
    for (const jail::Place& place : other.places)
        jail::add_place(plan, place.path, place.write);
    plan.folders.insert(plan.folders.end(), other.folders.begin(), other.folders.end());
}

} // namespace

void OwnJail::enter(Setup& setup, const Options& options, bool will_listen, Setup* storage) {
    if (mode_ == jail::Mode::off)
        return;
    if (setup.probing.valid())
        setup.probing.wait(); // until its thread has ended
    const Permissions& permissions = setup.policy->permissions();
    jail::Plan plan = jail::plan_of(permissions, setup.program.cwd);
    plan.network |= will_listen;
    if (storage)
        add_plan(plan, jail::plan_of(storage->policy->permissions(), storage->program.cwd));
    for (const std::string& address : setup.listeners->addresses())
        if (address.starts_with(kUnixRule))
            keep_folder_of(plan, address);
    if (options.listen.starts_with(kUnixRule))
        keep_folder_of(plan, options.listen);
    if (options.gdb.starts_with(kUnixRule))
        keep_folder_of(plan, options.gdb);
    for (const Options* each : {&options, options.storage.get()})
        if (each && !each->core_dump.empty())
            jail::add_place(plan, each->core_dump, true);
    plan.mode = mode_;
    plan.hidden = options.hidden;
    jail_.enter(plan);
    if (!jail_.missing().empty())
        note_line(fmt::format(
            "walls that this host does not allow: {}; kvmserver doctor says more, --jail=off does without any",
            jail::text_of(jail_.missing())));
    if (options.on_walls)
        options.on_walls();
}

} // namespace kvmserver
