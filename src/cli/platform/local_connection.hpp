// Calls the API within this process.
#pragma once
#include "src/cli/platform/connection.hpp"

namespace kvmserver::cli::platform {

std::unique_ptr<Connection> connect_here(const Invocation& invocation, Context& context);

} // namespace kvmserver::cli::platform
