// Whose a function is. What tenants have in memory is shared within a tenant only.
#pragma once
#include <string>
#include <string_view>

namespace kvmserver::daemon {

// "": all functions are of one owner.
inline std::string tenant_of([[maybe_unused]] std::string_view function) { return ""; }

} // namespace kvmserver::daemon
