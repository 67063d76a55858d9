// Notices when the content of a function's files changes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "src/cli/dev/glob.hpp"
#include "src/cli/platform/manifest.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::cli::dev {

// What is known of a watched file's content.
struct Mark {
    std::int64_t changed_ns = 0; // since 1970
    bool settled = false;        // a later change would have another time
    std::uint64_t size = 0, inode = 0;
    std::uint64_t content = 0; // hash
};
using Marks = std::map<std::filesystem::path, Mark>;

// Files that exist in only one of them or have different contents.
std::vector<std::filesystem::path> differing(const Marks& before, const Marks& after);

class Watch {
public:
    // Watches the manifest and its globs. Without globs it watches the manifest's folder, except hidden files, editors'
    // temporary files and build output. Throws HostError.
    explicit Watch(const platform::Manifest& manifest);
    int fd() const { return inotify_.get(); } // readable: something happened; then call clear()
    // Takes all events. Returns whether the last one completed a file: it was closed after writing, or moved here.
    bool clear();
    // Examines all files, and watches new folders. Throws UserError if there are too many folders to watch.
    const Marks& look();

private:
    bool watched(const std::filesystem::path& file) const;
    void walk(const std::filesystem::path& folder, Marks& found);
    void watch_folder(const std::filesystem::path& folder);
    Mark mark_of(const std::filesystem::path& file) const;

    tinykvm::UniqueFd inotify_;
    std::vector<Glob> globs_;
    bool everything_ = false;       // no globs were given
    std::filesystem::path program_; // if the build makes it
    Marks marks_;
};

} // namespace kvmserver::cli::dev
