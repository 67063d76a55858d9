// What is deployed or pushed: a snapshot, a manifest, or a folder with one.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "src/cli/platform/manifest.hpp"
#include "src/cli/platform/platform.hpp"

namespace kvmserver::cli::platform {

struct Source {
    std::filesystem::path path;       // of the snapshot or of the manifest
    std::optional<Manifest> manifest; // nothing: it is a snapshot
};

// Throws UserError (not_found) for what is not there and for a folder without a manifest.
Source find_source(const std::string& operand, const Context& context);

// The file of a snapshot, made first when the source is a manifest; gone with this object when it was made.
class SnapshotFile {
public:
    SnapshotFile(const Source& source, bool quiet, Context& context);
    ~SnapshotFile();
    SnapshotFile(const SnapshotFile&) = delete;
    SnapshotFile& operator=(const SnapshotFile&) = delete;
    const std::filesystem::path& path() const { return path_; }

private:
    void build(const Manifest& manifest, bool quiet, Context& context);
    std::filesystem::path path_, temporary_;
};

} // namespace kvmserver::cli::platform
