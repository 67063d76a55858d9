// Catch2 3.x renamed the matcher of substrings.
#pragma once
#include "tests/catch.hpp"

namespace kvmserver::cli {

inline auto contains(const std::string& part) {
#ifdef KVMSERVER_CATCH2_V3
    return Catch::Matchers::ContainsSubstring(part);
#else
    return Catch::Matchers::Contains(part);
#endif
}

} // namespace kvmserver::cli
