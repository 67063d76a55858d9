#pragma once
#include <concepts>

#include "src/unique/finder.hpp"

namespace kvmserver::unique::v8 {

// Finds pools of random bytes that modules of Node and npm packages keep in V8's heap. Word: see v8_heap.hpp.
template <std::unsigned_integral Word>
void find_pools(const MemoryView& memory, Findings& findings);

} // namespace kvmserver::unique::v8
