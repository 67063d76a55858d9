// Whether a version may go live.
#pragma once
#include <string>

#include "src/cli/platform/manifest.hpp"
#include "src/cli/platform/platform.hpp"
#include "src/store/digest.hpp"
#include "src/store/store.hpp"

namespace kvmserver::cli::platform {

// Restores a machine from the snapshot as it lies in the store and asks it for the manifest's health path, or
// only connects when it has none (or when there is no manifest). Throws UserError (failure) when it gives no
// answer of a status below 500 in time, after printing what it said on stderr.
void require_health(store::Store& store, const store::Digest& snapshot, const Manifest* manifest,
                    Context& context);

} // namespace kvmserver::cli::platform
