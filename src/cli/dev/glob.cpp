#include "src/cli/dev/glob.hpp"

#include <fnmatch.h>

#include <span>

namespace kvmserver::cli::dev {
namespace {

namespace fs = std::filesystem;
using Names = std::span<const std::string>;

bool has_wildcard(const std::string& name) { return name.find_first_of("*?[") != name.npos; }

bool match(Names pattern, Names names) {
    if (pattern.empty())
        return names.empty();
    if (pattern.front() == "**") {
        // A trailing "**" matches files, not the folder itself.
        if (pattern.size() == 1)
            return !names.empty();
        for (std::size_t skipped = 0; skipped <= names.size(); ++skipped)
            if (match(pattern.subspan(1), names.subspan(skipped)))
                return true;
        return false;
    }
    return !names.empty() && ::fnmatch(pattern.front().c_str(), names.front().c_str(), 0) == 0 &&
           match(pattern.subspan(1), names.subspan(1));
}

std::vector<std::string> names_of(const fs::path& path) {
    std::vector<std::string> names;
    for (const fs::path& part : path)
        if (!part.empty() && part != ".")
            names.push_back(part.string());
    return names;
}

} // namespace

Glob::Glob(const fs::path& folder, const std::string& pattern) : root_(folder) {
    const fs::path whole(pattern);
    if (whole.is_absolute())
        root_ = whole.root_path();
    const std::vector<std::string> names = names_of(whole.relative_path());
    std::size_t fixed = 0;
    while (fixed < names.size() && !has_wildcard(names[fixed]))
        root_ /= names[fixed++];
    std::error_code error;
    segments_.assign(names.begin() + static_cast<std::ptrdiff_t>(fixed), names.end());
    root_ = root_.lexically_normal();
    if (segments_.empty() && fs::is_directory(root_, error)) {
        segments_ = {"**"};
    } else if (segments_.empty()) {
        segments_ = {root_.filename().string()};
        root_ = root_.parent_path();
    }
    if (!root_.has_filename() && root_.has_relative_path())
        root_ = root_.parent_path(); // remove a trailing slash
}

bool Glob::matches(const fs::path& file) const {
    const std::vector<std::string> names = names_of(file.lexically_relative(root_));
    return !names.empty() && names.front() != ".." && match(segments_, names);
}

} // namespace kvmserver::cli::dev
