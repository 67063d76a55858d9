#include "src/admin/trial.hpp"

#include "src/daemon/control.hpp"
#include "src/daemon/function_settings.hpp"
#include "src/daemon/health.hpp"
#include "src/ops/manifest.hpp"
#include "src/store/functions/secrets.hpp"

namespace kvmserver::admin {

void try_out(Call& call, const Grants& grants, const TrialOf& trial) {
    struct Turn {
        explicit Turn(std::counting_semaphore<>& all) : turns(all) { turns.acquire(); }
        ~Turn() { turns.release(); }
        std::counting_semaphore<>& turns;
    } const turn(call.api.trials());
    const daemon::FunctionSettings settings = daemon::function_settings(trial.manifest);
    daemon::Candidate candidate;
    candidate.name = trial.function + " (new)";
    candidate.function = trial.function;
    candidate.snapshot = trial.snapshot;
    candidate.control = call.api.options().control;
    candidate.executable = call.api.options().executable;
    candidate.jail = call.api.options().jail;
    candidate.examinations = &call.api.examinations();
    candidate.checked = &call.api.checked_chunks();
    candidate.ceilings = ceilings_text(grants.all());
    const bool shares = candidate.control && candidate.control->shares_across_tenants();
    candidate.tenant = shares ? "" : trial.tenant; // as its processes will have it
    // A version with a hook that is not activated may lack secrets so far: setting them requires the function to exist.
    if (trial.activate)
        candidate.after_restore = settings.after_restore;
    if (trial.activate || settings.after_restore.empty())
        candidate.health = ops::manifest_facts(trial.manifest).health;
    auto secrets = store::Secrets(call.store()).values(trial.function, trial.tenant);
    std::vector<std::string> own = trial.secrets;
    for (const auto& [name, value] : trial.new_secrets) {
        secrets[name] = value;
        own.push_back(name);
    }
    candidate.values = daemon::values_of(settings, trial.env, std::move(secrets), own);
    daemon::require_health(call.store(), candidate);
}

} // namespace kvmserver::admin
