#include "src/common/environment.hpp"

#include <cstdlib>

namespace kvmserver {

std::string environment_variable(const char* name) {
    const char* const value = std::getenv(name);
    return value ? value : "";
}

} // namespace kvmserver
