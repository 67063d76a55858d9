#include "src/setup/machine_env.hpp"

#include <unistd.h>

namespace kvmserver {

using namespace tinykvm;

MachineEnv make_env(const kvm::Kvm& kvm, const Policy* policy, const Options& options, const Limits& limits) {
    MachineEnv env;
    env.kvm = &kvm;
    env.kind = kvm::host_kind(kvm);
    env.cpu = kvm::guest_cpu(options.cpu, env.kind.xsave);
    env.policy = policy;
    env.limits = limits;
    env.options.verbose = options.verbose.general;
    env.options.keep_working_memory = options.keep_working_memory;
    env.options.patch_code = !options.code_as_is;
    env.options.time = options.clock == "continues" ? GuestTime::continues : GuestTime::pauses;
    env.options.fork = options.fork == "always"   ? ForkPolicy::always
                       : options.fork == "follow" ? ForkPolicy::follow
                       : options.fork == "refuse" ? ForkPolicy::refuse
                                                  : ForkPolicy::known;
    env.options.trace_syscalls = options.verbose.syscalls;
    env.options.trace_mmap = options.verbose.mmap;
    env.options.trace_threads = options.verbose.threads;
    env.options.trace_pagetables = options.verbose.pagetables;
    return env;
}

ProgramFacts facts_of(const ProgramSpec& program, const Limits& limits) {
    ProgramFacts facts;
    facts.program = program.path;
    facts.arguments = program.args;
    facts.cwd = program.cwd;
    facts.cpus = 1;
    facts.memory_bytes = limits.memory;
    facts.uid = static_cast<std::uint32_t>(::getuid());
    facts.gid = static_cast<std::uint32_t>(::getgid());
    facts.kernel_release = "6.1.0-kvmserver";
    return facts;
}

EventLoop::Own own_listeners(const Setup& setup) {
    return setup.policy->permissions().shared_network ? EventLoop::Own::dry : EventLoop::Own::real;
}

void start_listeners(Setup& setup, const Options& options) {
    setup.listeners = std::make_unique<Listeners>();
    setup.listeners->set_policy(setup.policy.get());
    if (options.listen.starts_with("fd:"))
        setup.listeners->override_first(UniqueFd(parse_listen_fd(options.listen)));
    else if (!options.listen.empty())
        setup.listeners->override_first(parse_listen_address(options.listen));
}

} // namespace kvmserver
