// Checks on deploys by a token that is limited to some functions. It may claim routes of its functions' own hosts and
// routes that it was granted, and use its own secrets and those granted to the function. For other callers these
// functions check nothing.
#pragma once
#include "src/admin/call.hpp"
#include "src/ops/deploy.hpp"

namespace kvmserver::admin {

// Throws Refused (403 route-not-granted), with the same text whether or not somebody has the route.
void require_routes(Call& call, const ops::DeployPlan& plan);
// Throws Refused (403 secret-not-granted) for a version that goes live, with the same text whether or not the secret
// exists. A version that is only kept gets no secret without a grant either (store::Secrets::values).
void require_secrets(Call& call, const ops::DeployPlan& plan);

} // namespace kvmserver::admin
