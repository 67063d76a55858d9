// What a deploy by a token that is limited to some functions may claim: routes of its own functions' hosts and
// those that are granted to it, and secrets of its own and those that are granted to the function. For whoever
// is not limited these check nothing.
#pragma once
#include "src/admin/call.hpp"
#include "src/ops/deploy.hpp"

namespace kvmserver::admin {

// Throws Refused (403 route-not-granted). What it says is the same whether somebody has that route or not.
void require_routes(Call& call, const ops::DeployPlan& plan);
// Throws Refused (403 secret-not-granted) for a version that goes live; the same whether there is such a secret or
// not. (One that is only kept, too, gets no secret that is not granted: store::Secrets::values.)
void require_secrets(Call& call, const ops::DeployPlan& plan);

} // namespace kvmserver::admin
