// The wall clock in the unit of the index.
#pragma once
#include <cstdint>

namespace kvmserver::store {

std::int64_t now_ms(); // milliseconds since 1970

} // namespace kvmserver::store
