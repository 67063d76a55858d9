#include "src/cli/machine/snapshot_file.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "src/cli/platform/child.hpp"
#include "src/cli/platform/platform.hpp"
#include "src/ops/reference.hpp"
#include "src/store/snapshots/stored_snapshot.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {

using tinykvm::UserError;

FoundSnapshot find_snapshot_file(const Invocation& invocation, Context& context) {
    FoundSnapshot found{.shown = invocation.operands.front(), .copy = {}, .path = invocation.operands.front()};
    std::error_code error;
    const auto status = std::filesystem::status(found.path, error);
    const bool here = std::filesystem::exists(status);
    // A folder is no snapshot, but a function may have its name.
    if (found.path.find('/') != found.path.npos || (here && !std::filesystem::is_directory(status)) ||
        !(platform::text(invocation, "store") || platform::store_exists(platform::store_path(invocation, context))))
        return found;
    const auto opened = platform::open_store(invocation, context);
    std::optional<Digest> digest;
    try {
        digest = ops::find_snapshot(*opened, found.shown);
    } catch (const UserError&) {
        if (here)
            return found;
        throw;
    }
    if (here)
        context.err << fmt::format("kvmserver: {} is the function; the folder is ./{}\n", found.shown, found.shown);
    const store::StoredSnapshot snapshot(*opened, *digest);
    found.copy = platform::memory_file("kvmserver-snapshot");
    snapshot.export_to(found.copy.get());
    found.path = fmt::format("/proc/self/fd/{}", found.copy.get());
    return found;
}

} // namespace kvmserver::cli
