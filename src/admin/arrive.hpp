// Functions that come from another daemon.
#pragma once
#include <cstdint>
#include <string>

#include "src/admin/call.hpp"

namespace kvmserver::admin {

// Before the version is deleted: states of machines that came with it, if it was not taken over.
void forget_arrived(Call& call, const std::string& name, std::uint64_t version);

} // namespace kvmserver::admin
