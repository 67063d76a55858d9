// The wall clock as the index writes it.
#pragma once
#include <cstdint>

namespace kvmserver::store {

std::int64_t now_ms(); // since 1970

} // namespace kvmserver::store
