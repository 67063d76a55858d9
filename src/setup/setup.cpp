#include "src/setup/setup.hpp"

#include <cstdlib>

#include "src/setup/core_dump.hpp"
#include "src/setup/environment.hpp"
#include "src/setup/huge_pages.hpp"
#include "src/setup/machine_env.hpp"
#include "src/setup/report.hpp"

namespace kvmserver {

using namespace tinykvm;

std::unique_ptr<Setup> set_up_program(const Options& options) {
    check_arena(options.limits);
    const char* path = std::getenv("PATH");
    ProgramSpec program = resolve_program(options.program, options.args, options.cwd, path ? path : kUsualPath,
                                          [&](const std::string& found) {
                                              const auto real = options.substitutes.find(found);
                                              return real == options.substitutes.end() ? found : real->second;
                                          });
    program.env = guest_environment(options);
    program.late_env = options.late_env;
    Permissions permissions = options.permissions;
    permissions.hidden = hidden_folders(options);
    for (std::string& file : implied_files(program))
        permissions.implied_read.push_back(std::move(file));
    // NOLINTNEXTLINE(modernize-make-unique): an aggregate that cannot be moved
    auto setup = std::unique_ptr<Setup>(new Setup{kvm::Kvm::open(), nullptr, {}, std::move(program), nullptr, {}, {}});
    setup->policy = std::make_unique<Policy>(permissions, facts_of(setup->program, options.limits));
    for (const std::string& warning : setup->policy->warnings())
        note_line(warning);
    setup->env = make_env(setup->kvm, setup->policy.get(), options, options.limits);
    setup->env.on_killed = core_dumps(options, program_name(setup->program));
    start_listeners(*setup, options);
    return setup;
}

} // namespace kvmserver
