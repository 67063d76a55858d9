// Notices that a file of a function has another content than before.
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

// The content of the watched files, by path.
struct Mark {
    std::int64_t changed_ns = 0; // since 1970
    bool settled = false;        // a later change has another time
    std::uint64_t size = 0, inode = 0;
    std::uint64_t content = 0; // hash
};
using Marks = std::map<std::filesystem::path, Mark>;

// Files that are in only one of them or have another content.
std::vector<std::filesystem::path> differing(const Marks& before, const Marks& after);

class Watch {
public:
    // The manifest's globs, and the manifest; without globs its folder but hidden files, what editors leave
    // and where builds put their output. Throws HostError.
    explicit Watch(const platform::Manifest& manifest);
    int fd() const { return inotify_.get(); } // readable: something happened; take it with clear()
    void clear();
    // Looks at all files. Watches folders that are new. Throws UserError when there are too many to watch.
    const Marks& look();

private:
    bool watched(const std::filesystem::path& file) const;
    void walk(const std::filesystem::path& folder, Marks& found);
    void watch_folder(const std::filesystem::path& folder);
    Mark mark_of(const std::filesystem::path& file) const;

    tinykvm::UniqueFd inotify_;
    std::vector<Glob> globs_;
    bool everything_ = false;       // no globs were given
    std::filesystem::path program_; // when the build makes it
    Marks marks_;
};

} // namespace kvmserver::cli::dev
