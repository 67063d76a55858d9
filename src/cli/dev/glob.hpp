// Matches files against patterns such as "src/**/*.js", "*.toml", "../shared".
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace kvmserver::cli::dev {

// "*", "?" and "[a-z]" match within a name, "**" any number of folders. A pattern without wildcards that names a folder
// matches everything in it.
class Glob {
public:
    Glob(const std::filesystem::path& folder, const std::string& pattern);
    // The deepest folder that contains all possible matches; absolute.
    const std::filesystem::path& root() const { return root_; }
    bool matches(const std::filesystem::path& file) const; // `file` is an absolute path without ".."

private:
    std::filesystem::path root_;
    std::vector<std::string> segments_; // below root_
};

} // namespace kvmserver::cli::dev
