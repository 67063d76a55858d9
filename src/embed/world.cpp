#include "src/embed/world.hpp"

#include <cstdlib>
#include <filesystem>

#include <unistd.h>

#include "tinykvm/base/error.hpp"

namespace kvmserver::embed {

using namespace tinykvm;

namespace {

void set_up(World& world, const Permissions& permissions, const Limits& limits, const Settings& settings) {
    ProgramFacts facts;
    facts.program = world.program.path;
    facts.arguments = world.program.args;
    facts.cwd = world.program.cwd;
    facts.memory_bytes = limits.memory;
    facts.uid = static_cast<std::uint32_t>(::getuid());
    facts.gid = static_cast<std::uint32_t>(::getgid());
    world.policy = std::make_unique<Policy>(permissions, facts);
    for (const std::string& warning : world.policy->warnings())
        world.log(warning);
    MachineEnv& env = world.env;
    env.kvm = &world.kvm;
    env.kind = kvm::host_kind(world.kvm);
    env.cpu = kvm::guest_cpu(settings.cpu, env.kind.xsave);
    env.policy = world.policy.get();
    env.limits = limits;
    env.options.verbose = settings.verbose;
    env.options.patch_code = !settings.code_as_is;
    env.options.callable = true;
}

} // namespace

std::shared_ptr<World> world_for_program(const Settings& settings, Listener listener) {
    // NOLINTNEXTLINE(modernize-make-shared): an aggregate that cannot be moved
    std::shared_ptr<World> world(new World{kvm::Kvm::open(), {}, nullptr, {}, std::move(listener)});
    const char* path = std::getenv("PATH");
    const std::string cwd = settings.cwd.empty() ? std::filesystem::current_path().string() : settings.cwd;
    world->program =
        resolve_program(settings.program, settings.arguments, cwd, path ? path : "/usr/local/bin:/usr/bin:/bin");
    world->program.env = settings.env;
    Permissions permissions = settings.permissions;
    for (std::string& file : implied_files(world->program))
        permissions.implied_read.push_back(std::move(file));
    set_up(*world, permissions, settings.limits, settings);
    return world;
}

std::shared_ptr<World> world_for_snapshot(const MachineState& state, const Settings* settings, Listener listener) {
    // NOLINTNEXTLINE(modernize-make-shared): an aggregate that cannot be moved
    std::shared_ptr<World> world(new World{kvm::Kvm::open(), {}, nullptr, {}, std::move(listener)});
    world->program.path = world->program.name = state.program.path;
    world->program.args = state.program.args;
    world->program.cwd = state.program.cwd;
    Permissions permissions = state.permissions;
    if (settings && settings->gives_permissions()) {
        permissions = settings->permissions;
        permissions.implied_read = state.permissions.implied_read;
    }
    Limits limits = state.limits;
    const auto take = [&](const char* option, auto field) {
        if (settings && settings->given.contains(option))
            limits.*field = settings->limits.*field;
    };
    take("max-address-space", &Limits::address_space);
    take("max-keep-memory", &Limits::keep_memory);
    take("max-main-memory", &Limits::memory);
    take("max-open-files", &Limits::open_files);
    take("max-request-cpu", &Limits::request_cpu_seconds);
    take("max-request-memory", &Limits::request_memory);
    take("max-request-time", &Limits::request_seconds);
    take("no-executable-heap", &Limits::executable_heap);
    set_up(*world, permissions, limits, settings ? *settings : Settings());
    return world;
}

} // namespace kvmserver::embed
