#pragma once
#include "src/unique/finder.hpp"

namespace kvmserver::unique::v8 {

// Finds the generators of V8's isolates, which seed Math.random of contexts created later.
void find_isolates(const MemoryView& memory, Findings& findings);

} // namespace kvmserver::unique::v8
