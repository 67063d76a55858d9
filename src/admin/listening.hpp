// The addresses of TCP functions: who has them, and whether the daemon can listen there.
#pragma once
#include <string>
#include <vector>

#include "src/admin/call.hpp"
#include "src/daemon/function_settings.hpp"
#include "src/store/functions/functions.hpp"

namespace kvmserver::admin {

enum class Claim { looks, keeps }; // keeps: for the change that follows

// Throws store::Conflict if another function or process has one of the addresses, or if the daemon has no TLS listener
// and the function needs one; UserError if this host has no such address. Without a daemon it only knows of other
// functions.
void require_listening(Call& call, const std::string& function, const daemon::TcpSettings& tcp, Claim claim);
// The same before these versions go live. Throws store::Conflict also if they are not for the same addresses.
void require_listening(Call& call, const std::string& function, const std::vector<store::Live>& live, Claim claim);

} // namespace kvmserver::admin
