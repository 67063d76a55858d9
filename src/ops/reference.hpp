// Names of snapshots in a store, and numbers, as people write them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "src/common/digest.hpp"
#include "src/store/store.hpp"

namespace kvmserver::ops {

// Resolves "sha256:ab12..." (a unique prefix is enough), "NAME" (the live version with the most requests) or "NAME@3".
// Throws NotFound, and UserError (usage) for any other form.
Digest find_snapshot(store::Store& store, const std::string& reference);

// Parses an unsigned number up to INT64_MAX; `what` is for the message. Throws UserError (usage).
std::uint64_t whole_number(std::string_view text, std::string_view what);
std::uint64_t version_number(std::string_view text); // "3" or "v3"; throws likewise

} // namespace kvmserver::ops
