// Which files a pattern means: "src/**/*.js", "*.toml", "../shared".
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace kvmserver::cli::dev {

// "*", "?" and "[a-z]" match within a name, "**" any number of folders. A pattern without them that is a
// folder means all of it.
class Glob {
public:
    Glob(const std::filesystem::path& folder, const std::string& pattern);
    // The folder that holds all that can match; absolute.
    const std::filesystem::path& root() const { return root_; }
    bool matches(const std::filesystem::path& file) const; // an absolute path without ".."

private:
    std::filesystem::path root_;
    std::vector<std::string> segments_; // below root_
};

} // namespace kvmserver::cli::dev
