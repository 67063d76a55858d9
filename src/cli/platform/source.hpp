// What to deploy or push: a snapshot, a manifest, or a folder with a manifest.
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
    std::filesystem::path path;       // of the snapshot or the manifest
    std::optional<Manifest> manifest; // nothing: it is a snapshot
};

// Throws UserError (not_found) if it does not exist, or for a folder without a manifest.
Source find_source(const std::string& operand, const Context& context);

enum class Compress {
    fully,
    in_a_hurry, // unless the manifest names a level
};
enum class WarmUp {
    first,  // the file has the program warmed up
    behind, // as SnapshotFile::warmed(), if it is to be warmed up automatically
};

// The file of a snapshot. If the source is a manifest, the snapshot is built first. Its file is unlinked, so it is gone
// with this object, however the process ends.
class SnapshotFile {
public:
    // Throws UserError if the build fails, with the status of `kvmserver snapshot` or `failure`. A signal that ends the
    // process takes effect only when nothing is left behind.
    SnapshotFile(const Source& source, Talk talk, Context& context, Compress compress = Compress::fully,
                 WarmUp warm_up = WarmUp::first);
    ~SnapshotFile();
    const std::filesystem::path& path() const { return path_; } // valid in this process
    ops::DigestedFile digested() const;
    bool hurried() const { return hurried_; }             // it was compressed in a hurry
    bool warms_up() const { return warming_ != nullptr; } // warmed() is to be called

    // Warms the program up. Returns whether path() now is the warmed-up snapshot: a warm-up may help nothing.
    // Throws UserError if it fails, and Interrupted when nothing is left behind.
    bool warmed(Context& context);

private:
    struct Warming;
    std::filesystem::path path_;
    tinykvm::UniqueFd made_;
    std::unique_ptr<Warming> warming_;
    bool hurried_ = false;
};

} // namespace kvmserver::cli::platform
