// Looks up symbols that a program or library exports, by its dynamic section in memory. The file itself is not needed.
#pragma once
#include <optional>
#include <string_view>

#include "src/unique/memory_view.hpp"

namespace kvmserver::unique {

struct Exported {
    tinykvm::GuestVirt at;
    std::uint64_t bytes = 0;
};

// Looks in the ELF file that is mapped from `first` on. nullopt when it has no GNU hash table or no such symbol.
std::optional<Exported> exported(const MemoryView& memory, const Area& first, std::string_view name);

} // namespace kvmserver::unique
