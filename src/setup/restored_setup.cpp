// Set-up for a restored machine: the snapshot's values, overridden by the user's.
#include <algorithm>
#include <thread>

#include "src/setup/core_dump.hpp"
#include "src/setup/huge_pages.hpp"
#include "src/setup/machine_env.hpp"
#include "src/setup/report.hpp"
#include "src/setup/setup.hpp"

namespace kvmserver {

using namespace tinykvm;

std::unique_ptr<Setup> begin_restored() {
    // NOLINTNEXTLINE(modernize-make-unique): an aggregate that cannot be moved
    auto setup = std::unique_ptr<Setup>(new Setup{kvm::Kvm::open(), nullptr, {}, {}, nullptr, {}, {}});
    if (!kvm::host_kind_is_known())
        setup->probing = std::async(std::launch::async, [&kvm = setup->kvm] { kvm::host_kind(kvm); });
    setup->pool.fill(setup->kvm, 1);
    return setup;
}

std::unique_ptr<Setup> set_up_restored(const Options& options, const MachineState& state,
                                       std::unique_ptr<Setup> setup) {
    const auto given = [&](const char* name) {
        return std::find(options.given.begin(), options.given.end(), name) != options.given.end();
    };
    ProgramSpec program;
    program.path = state.program.path;
    program.name = state.program.path;
    program.args = state.program.args;
    program.cwd = state.program.cwd;
    Permissions permissions = state.permissions;
    if (given("allow-all") || given("allow-read") || given("allow-write") || given("allow-connect") ||
        given("allow-listen") || given("allow-net") || given("volume")) {
        // Options replace the saved permissions: a snapshot may be run with fewer or more rights.
        const std::vector<std::string> implied = permissions.implied_read;
        permissions = options.permissions;
        permissions.implied_read = implied;
    }
    permissions.always_own_folders = options.permissions.always_own_folders;
    permissions.hidden = hidden_folders(options);
    permissions.shared_network = options.shared_network;
    Limits limits = state.limits;
    if (given("max-request-time"))
        limits.request_seconds = options.limits.request_seconds;
    if (given("max-request-total"))
        limits.request_total_seconds = options.limits.request_total_seconds;
    if (given("max-request-cpu"))
        limits.request_cpu_seconds = options.limits.request_cpu_seconds;
    if (given("no-executable-heap"))
        limits.executable_heap = options.limits.executable_heap;
    if (given("max-main-memory"))
        limits.memory = options.limits.memory;
    if (given("max-address-space"))
        limits.address_space = options.limits.address_space;
    if (given("max-request-memory"))
        limits.request_memory = options.limits.request_memory;
    if (given("limit-request-memory"))
        limits.keep_memory = options.limits.keep_memory;
    if (given("hugepage-requests-arena")) {
        limits.request_arena = options.limits.request_arena;
        check_arena(limits);
    }
    std::vector<Granted> granted;
    for (const Ceilings& each : options.ceilings) {
        limits = limited_by(limits, each);
        granted.push_back(granted_by(each));
    }
    setup->program = std::move(program);
    setup->policy = std::make_unique<Policy>(permissions, facts_of(setup->program, limits), granted);
    setup->env = make_env(setup->kvm, setup->policy.get(), options, limits);
    setup->env.on_killed = core_dumps(options, program_name(setup->program));
    if (!given("clock") && state.clock_continues)
        setup->env.options.time = GuestTime::continues;
    if (!given("fork"))
        setup->env.options.fork = state.fork;
    setup->env.pool = &setup->pool;
    setup->env.second_vcpu =
        setup->env.kind.pvm_entry && std::thread::hardware_concurrency() > std::max(1u, options.threads);
    start_listeners(*setup, options);
    return setup;
}

} // namespace kvmserver
