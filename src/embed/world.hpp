// What an image and its machines share: KVM, the policy, the settings of machines. Immutable.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "src/embed/settings.hpp"
#include "tinykvm/kvm/kvm.hpp"
#include "tinykvm/machine/machine.hpp"

namespace kvmserver::embed {

// Who is told what. Empty functions: see include/tinykvm/tinykvm.h.
struct Listener {
    tinykvm::OutputSink output;
    std::function<void(const std::string& line)> log;
};

struct World {
    tinykvm::kvm::Kvm kvm;
    tinykvm::ProgramSpec program;
    std::unique_ptr<tinykvm::Policy> policy;
    tinykvm::MachineEnv env;
    Listener listener;

    void log(const std::string& line) const {
        if (listener.log)
            listener.log(line);
    }
    tinykvm::ResetStrategy reset_strategy() const {
        return env.kind.dirty_bits ? tinykvm::ResetStrategy::dirty_bits : tinykvm::ResetStrategy::working_set;
    }
};

// Throw UserError, HostError.
std::shared_ptr<World> world_for_program(const Settings& settings, Listener listener);
// For a snapshot: its values, overridden by the settings, which may be null.
std::shared_ptr<World> world_for_snapshot(const tinykvm::MachineState& state, const Settings* settings,
                                          Listener listener);

} // namespace kvmserver::embed
