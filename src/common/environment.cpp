#include "src/common/environment.hpp"

#include <cstdlib>

namespace kvmserver {

std::string environment_variable(const char* name) {
    const char* const value = std::getenv(name);
    return value ? value : "";
}

bool copies_environment(const std::string& program) {
    const std::string name = program.substr(program.rfind('/') + 1);
    return name.starts_with("python") || name == "java";
}

} // namespace kvmserver
