// Work on all CPUs, in pieces that are independent of each other.
#pragma once
#include <cstddef>
#include <functional>

namespace tinykvm {

// Calls work(0) to work(count - 1), each once, in any order and on several threads; returns when all are done. An
// exception that one of them throws is thrown here, after the others that had begun. Where no thread can be started,
// this one does it all.
void in_parallel(std::size_t count, const std::function<void(std::size_t)>& work);

} // namespace tinykvm
