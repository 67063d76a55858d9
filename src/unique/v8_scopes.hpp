// Finds variables of JavaScript modules by name in V8's heap.
//
// V8 keeps the variables of a module or function that closures use in a Context. Their names are in a ScopeInfo, in the
// order of the Context's slots (up to 75 in the ScopeInfo itself, more in a hash table). The layouts changed little
// from V8 10 to 15, and nothing here relies on numbers of types: the names, their count and the length of the context
// must all agree.
#pragma once
#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "src/unique/v8_heap.hpp"

namespace kvmserver::unique::v8 {

template <std::unsigned_integral Word>
struct Scope {
    Heap<Word> heap;
    tinykvm::GuestVirt context;
    std::map<std::string_view, int> slots; // slots of wanted variables, counted from the context's first word

    std::optional<tinykvm::GuestVirt> at(std::string_view name) const {
        const auto found = slots.find(name);
        if (found == slots.end())
            return std::nullopt;
        return context + static_cast<std::uint64_t>(found->second) * Heap<Word>::kSlot;
    }
    std::optional<std::int32_t> small(std::string_view name) const {
        const auto slot = at(name);
        return slot ? heap.small(*slot, 0) : std::nullopt;
    }
    std::optional<tinykvm::GuestVirt> object(std::string_view name) const {
        const auto slot = at(name);
        return slot ? heap.follow(*slot) : std::nullopt;
    }
};

// Names of variables that must be in the same scope.
using NamesTogether = std::vector<std::string_view>;

// The scopes that have all variables of at least one entry of `wanted`, whose strings must outlive the result.
template <std::unsigned_integral Word>
std::vector<Scope<Word>> scopes_with(const MemoryView& memory, std::span<const NamesTogether> wanted);

extern template std::vector<Scope<std::uint64_t>> scopes_with(const MemoryView&, std::span<const NamesTogether>);
extern template std::vector<Scope<std::uint32_t>> scopes_with(const MemoryView&, std::span<const NamesTogether>);

} // namespace kvmserver::unique::v8
