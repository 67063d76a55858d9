// Environment variables of this process.
#pragma once

#include <string>

namespace kvmserver {

std::string environment_variable(const char* name); // "" if it is not set

} // namespace kvmserver
