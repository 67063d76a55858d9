#include "src/runner/setup.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "src/runner/overrun.hpp"
#include "src/runner/synthetic_request.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/text.hpp"

extern char** environ;

namespace kvmserver {

using namespace tinykvm;

namespace {

// Host variables that the permissions let through, then those of --env.
std::vector<std::string> guest_environment(const Options& options) {
    std::vector<std::string> out;
    for (char** entry = environ; *entry; ++entry) {
        const std::string text = *entry;
        const std::string name = text.substr(0, text.find('='));
        if (options.permissions.all || env_allowed(options.permissions, name))
            out.push_back(text);
    }
    for (const std::string& given : options.env) {
        const std::string name = given.substr(0, given.find('=')) + "=";
        std::erase_if(out, [&](const std::string& e) { return e.starts_with(name); });
        out.push_back(given);
    }
    for (const std::string& late : options.late_env)
        std::erase_if(out, [&](const std::string& e) { return e.starts_with(late.substr(0, late.find('=') + 1)); });
    return out;
}

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
    env.options.trace_syscalls = options.verbose.syscalls;
    env.options.trace_mmap = options.verbose.mmap;
    env.options.trace_threads = options.verbose.threads;
    env.options.trace_pagetables = options.verbose.pagetables;
    return env;
}

void start_listeners(Setup& setup, const Options& options) {
    setup.listeners = std::make_unique<Listeners>();
    setup.listeners->set_policy(setup.policy.get());
    if (options.listen.starts_with("fd:"))
        setup.listeners->override_first(UniqueFd(parse_listen_fd(options.listen)));
    else if (!options.listen.empty())
        setup.listeners->override_first(parse_listen_address(options.listen));
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

} // namespace

void note_line(const std::string& line) {
    const std::string text = "kvmserver: " + printable(line) + "\n" /* names and texts of the guest may be in it */;
    (void)!::write(STDERR_FILENO, text.data(), text.size());
}

std::string program_name(const ProgramSpec& program) {
    const std::string& path = program.script.empty() ? program.path : program.script;
    return path.substr(path.rfind('/') + 1);
}

std::unique_ptr<Setup> set_up_program(const Options& options) {
    const char* path = std::getenv("PATH");
    ProgramSpec program =
        resolve_program(options.program, options.args, options.cwd, path ? path : "/usr/local/bin:/usr/bin:/bin");
    program.env = guest_environment(options);
    program.late_env = options.late_env;
    Permissions permissions = options.permissions;
    permissions.hidden = options.hidden;
    for (std::string& file : implied_files(program))
        permissions.implied_read.push_back(std::move(file));
    auto setup = std::unique_ptr<Setup>(new Setup{kvm::Kvm::open(), nullptr, {}, std::move(program), nullptr, {}, {}});
    setup->policy = std::make_unique<Policy>(permissions, facts_of(setup->program, options.limits));
    for (const std::string& warning : setup->policy->warnings())
        note_line(warning);
    setup->env = make_env(setup->kvm, setup->policy.get(), options, options.limits);
    start_listeners(*setup, options);
    return setup;
}

std::unique_ptr<Setup> begin_restored() {
    auto setup = std::unique_ptr<Setup>(new Setup{kvm::Kvm::open(), nullptr, {}, {}, nullptr, {}, {}});
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
        // What is given here replaces what was saved: a snapshot may be run with fewer or more rights.
        const std::vector<std::string> implied = permissions.implied_read;
        permissions = options.permissions;
        permissions.implied_read = implied;
    }
    permissions.always_own_folders = options.permissions.always_own_folders;
    permissions.hidden = options.hidden;
    Limits limits = state.limits;
    if (given("max-request-time"))
        limits.request_seconds = options.limits.request_seconds;
    if (given("max-request-total"))
        limits.request_total_seconds = options.limits.request_total_seconds;
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
    std::vector<Granted> granted;
    for (const Ceilings& each : options.ceilings) {
        limits = lesser(limits, each);
        granted.push_back(granted_by(each));
    }
    setup->program = std::move(program);
    setup->policy = std::make_unique<Policy>(permissions, facts_of(setup->program, limits), granted);
    setup->env = make_env(setup->kvm, setup->policy.get(), options, limits);
    if (!given("clock") && state.clock_continues)
        setup->env.options.time = GuestTime::continues;
    setup->env.pool = &setup->pool;
    if (setup->env.kind.pvm_door && std::thread::hardware_concurrency() > std::max(1u, options.threads))
        setup->pool.add_second(setup->kvm);
    start_listeners(*setup, options);
    return setup;
}

int report_stop(const std::string& name, const Stop& stop) {
    switch (stop.kind) {
    case StopKind::exited: return stop.status;
    case StopKind::killed: note_line(fmt::format("{}: {}", name, stop.report)); return 128 + stop.status;
    case StopKind::no_memory: note_line(fmt::format("{}: {}; raise --max-main-memory", name, stop.report)); return 1;
    default: note_line(fmt::format("{}: the machine broke: {}", name, stop.report)); return 1;
    }
}

void tell_refusals(const std::string& name, const EventLoop& loop) {
    for (const std::string& line : loop.refusals().advice())
        note_line(fmt::format("{}: {}", name, line));
}

Booted boot_program(const Setup& setup, const Options& options, bool must_listen) {
    Booted booted;
    const std::string name = program_name(setup.program);
    const std::uint64_t begin = host_mono_ns();
    booted.loop = std::make_unique<EventLoop>(*setup.listeners, note_line);
    booted.loop->keep_refusals(true);
    booted.loop->set_exists([&policy = *setup.policy](const std::string& path) { return policy.is_on_host(path); });
    booted.machine = Machine::boot(setup.env, setup.program, *booted.loop);
    EventLoop::Until until;
    until.quiescent = true;
    if (must_listen) {
        until.limit_ns = static_cast<std::uint64_t>(options.limits.boot_seconds * 1e9);
        until.all_waits_count = true;
    }
    const LoopEnd end = booted.end = booted.loop->run(*booted.machine, until);
    booted.seconds = static_cast<double>(host_mono_ns() - begin) / 1e9;
    if (end == LoopEnd::quiescent)
        return booted;
    booted.machine->space(); // still alive: its memory tells where it was
    if (end == LoopEnd::requested) {
        booted.exit_code = 0;
    } else if (end == LoopEnd::timeout) {
        const bool computed = booted.loop->overrun() == Overrun::computed;
        note_line(fmt::format("{}: did not wait for a connection within {:.4g} s{}; it needs more time "
                              "(--max-boot-time) or is no server",
                              name, options.limits.boot_seconds,
                              computed ? " of CPU time" : ", most of which it waited for something else"));
        booted.exit_code = static_cast<int>(ExitCode::unreachable);
    } else {
        booted.exit_code = report_stop(name, booted.loop->stop());
        if (must_listen && booted.loop->stop().kind == StopKind::exited) {
            note_line(fmt::format("{}: exited with status {} before it waited for a connection", name,
                                  booted.loop->stop().status));
            booted.exit_code = booted.exit_code == 0 ? static_cast<int>(ExitCode::failure) : booted.exit_code;
        }
    }
    if (booted.exit_code != 0)
        tell_refusals(name, *booted.loop);
    booted.machine.reset();
    return booted;
}

} // namespace kvmserver
