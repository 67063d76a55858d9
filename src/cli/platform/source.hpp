// What is deployed or pushed: a snapshot, a manifest, or a folder with one.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "src/cli/platform/manifest.hpp"
#include "src/cli/platform/platform.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::cli::platform {

struct Source {
    std::filesystem::path path;       // of the snapshot or of the manifest
    std::optional<Manifest> manifest; // nothing: it is a snapshot
};

// Throws UserError (not_found) for what is not there and for a folder without a manifest.
Source find_source(const std::string& operand, const Context& context);

// The file of a snapshot, made first when the source is a manifest; then it has no name and is gone with this
// object, however the process ends.
class SnapshotFile {
public:
    // What fails to build is a UserError with the status of `kvmserver snapshot`, or `failure`. A signal that
    // ends the process does so when nothing is left behind.
    SnapshotFile(const Source& source, bool quiet, Context& context);
    const std::filesystem::path& path() const { return path_; } // for this process

private:
    std::filesystem::path path_;
    tinykvm::UniqueFd made_;
};

} // namespace kvmserver::cli::platform
