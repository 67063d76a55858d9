// What a jail must leave open for a program's permissions to mean something.
#pragma once
#include <string>

#include "src/jail/plan.hpp"
#include "tinykvm/linux/permissions.hpp"

namespace kvmserver::jail {

// `cwd`: the folder that the program works in. Its mode is Mode::automatic, nothing is hidden.
Plan plan_of(const tinykvm::Permissions& permissions, const std::string& cwd);

} // namespace kvmserver::jail
