#pragma once
#include "src/unique/finder.hpp"

namespace kvmserver::unique::v8 {

// Generators of V8's isolates, which seed Math.random of contexts that the program makes later.
void find_isolates(const MemoryView& memory, Findings& findings);

} // namespace kvmserver::unique::v8
