// Environment variables of this process, and of programs.
#pragma once

#include <string>

namespace kvmserver {

std::string environment_variable(const char* name); // "" if it is not set

// Whether a program with this path copies its environment when it starts, as Python's os.environ does. It does not see
// values that are put in place later.
bool copies_environment(const std::string& program);

} // namespace kvmserver
