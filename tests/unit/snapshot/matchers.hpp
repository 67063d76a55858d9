// String matchers that Catch2 2.x and 3.x name differently.
#pragma once
#include "tests/catch.hpp"

namespace kvmserver::test {

#ifdef KVMSERVER_CATCH2_V3
inline auto Contains(const std::string& part) { return Catch::Matchers::ContainsSubstring(part); }
#else
using Catch::Matchers::Contains;
#endif
using Catch::Matchers::EndsWith;

} // namespace kvmserver::test
