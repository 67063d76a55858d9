// Addresses of a program's functions and variables.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "tinykvm/memory/address_space.hpp"

namespace kvmserver::embed {

// Reads the bytes of the program's memory at an address; false when it is not mapped.
using ReadMemory = std::function<bool(std::uint64_t at, std::span<std::byte> to)>;

// The address of a symbol of the files that are mapped in `regions`: of `program` first, then of the others by address.
// A file that differs from what is mapped of its beginning is not used. Throws UserError (not_found) that says why
// there is none.
std::uint64_t find_symbol(const tinykvm::AddressSpace::Regions& regions, const std::string& program,
                          const ReadMemory& memory, const std::string& name);

} // namespace kvmserver::embed
