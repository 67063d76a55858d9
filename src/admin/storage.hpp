// Checks on [function.storage] before a version goes live.
#pragma once
#include "src/admin/call.hpp"
#include "src/daemon/function_settings.hpp"
#include "src/ops/deploy.hpp"

namespace kvmserver::admin {

// The storage must be a live function with protocol = "tcp". Throws store::NotFound, store::Conflict, and Refused (403
// storage-not-granted) for a token that is not for it, with the same text whether or not it exists.
void require_storage(Call& call, const ops::DeployPlan& plan, const daemon::FunctionSettings& settings);

} // namespace kvmserver::admin
