// Finds pools of random bytes in the source text of JavaScript programs. A pool is recognised by what the code does
// with it, whatever a minifier called its variables:
//
//     used > pool.length - 16 && (crypto.randomFillSync(pool), used = 0)
//
// npm's uuid and nanoid do so, bundled or not. If `used` is beyond the pool's length, the next draw fills the pool.
#pragma once
#include <string>
#include <vector>

#include "src/unique/memory_view.hpp"

namespace kvmserver::unique {

struct PoolNames {
    std::string used, pool; // variables of one scope
    int portion = 0;        // bytes taken by each draw; 0 if that varies
    bool operator==(const PoolNames&) const = default;
};

// Pools in one piece of text, whose beginning and end may be cut off.
std::vector<PoolNames> pools_in_text(std::string_view text);

// Pools in the scripts in memory. V8 keeps their text, with one or two bytes a character.
std::vector<PoolNames> pools_in_scripts(const MemoryView& memory);

} // namespace kvmserver::unique
