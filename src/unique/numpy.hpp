// numpy.random's generators that nobody seeded.
#pragma once
#include "src/unique/finder.hpp"
#include "src/unique/python_objects.hpp"

namespace kvmserver::unique {

std::span<const PythonObjects::Wanted> numpy_types();
// An object of the numpy_types()[type].
void add_numpy(const MemoryView& memory, const PythonObjects& objects, tinykvm::GuestVirt object, std::size_t type,
               Findings& findings);

} // namespace kvmserver::unique
