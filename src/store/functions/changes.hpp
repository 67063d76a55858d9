// Which functions changed, in the index itself: whoever follows the store reads only these again.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "src/store/index/database.hpp"

namespace kvmserver::store {

constexpr std::uint64_t kMaxChanges = 4096; // older ones are deleted

struct Changes {
    std::int64_t last = 0;           // the newest change, for the next call
    bool all = false;                // `functions` is not complete: read all of them again
    std::set<std::string> functions; // made, changed or deleted
};

// Notes a change of what a daemon serves: a function's live versions, routes, variables or secrets, or that it was
// made or deleted. "": it may concern any function. Call it within the transaction of the change.
void note_change(Database& database, std::string_view function);
// The changes after `seen`, which is Changes::last of an earlier call.
Changes changes_since(const Database& database, std::int64_t seen);

} // namespace kvmserver::store
