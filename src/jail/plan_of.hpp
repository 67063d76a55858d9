// Derives a plan from a program's permissions: what the jail must leave open for them to have an effect.
#pragma once
#include <string>

#include "src/jail/plan.hpp"
#include "tinykvm/linux/permissions.hpp"

namespace kvmserver::jail {

// `cwd` is the program's working directory. The plan has Mode::automatic and hides nothing.
Plan plan_of(const tinykvm::Permissions& permissions, const std::string& cwd);

} // namespace kvmserver::jail
