// Finds numpy.random's generators that were not seeded.
#pragma once
#include "src/unique/finder.hpp"
#include "src/unique/python_objects.hpp"

namespace kvmserver::unique {

// Types of the generators, for PythonObjects::find().
std::span<const PythonObjects::Wanted> numpy_types();
// Adds the state of `object`, which is of type numpy_types()[type], unless it was seeded.
void add_numpy(const MemoryView& memory, const PythonObjects& objects, tinykvm::GuestVirt object, std::size_t type,
               Findings& findings);

} // namespace kvmserver::unique
