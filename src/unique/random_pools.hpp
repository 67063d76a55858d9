// Finds, in the source text of JavaScript programs, pools of random bytes by what the code does with them, whatever a
// minifier called its variables:
//
//     used > pool.length - 16 && (crypto.randomFillSync(pool), used = 0)
//
// So do npm's uuid and nanoid, bundled or not. A `used` beyond the pool's length makes the next draw fill it.
#pragma once
#include <string>
#include <vector>

#include "src/unique/memory_view.hpp"

namespace kvmserver::unique {

struct PoolNames {
    std::string used, pool; // variables of one scope
    int portion = 0;        // bytes that each draw takes, 0 when that differs
    bool operator==(const PoolNames&) const = default;
};

// Those of one piece of text, whose beginning and end may be cut off.
std::vector<PoolNames> pools_in_text(std::string_view text);

// Those of the scripts in memory: V8 keeps their text, of one or two bytes a character.
std::vector<PoolNames> pools_in_scripts(const MemoryView& memory);

} // namespace kvmserver::unique
