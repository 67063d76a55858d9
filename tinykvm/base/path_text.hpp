// Guest paths as text, without access to any file system.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tinykvm {

// Linux's PATH_MAX without the NUL.
inline constexpr std::size_t kMaxPath = 4095;

// A path cut into its components; "." and empty ones are dropped, ".." is kept.
struct PathText {
    std::vector<std::string> parts;
    bool absolute = false;
    bool dots = false;              // a ".." is among the parts
    bool must_be_directory = false; // ends in "/", "." or ".."
    bool ends_in_dot = false;       // the last component as written is "."
    bool ends_in_dotdot = false;
};
PathText cut_path(std::string_view path);

// "/a/b" of the parts; "/" when there are none.
std::string join_parts(const std::vector<std::string>& parts);

// `rel` relative to the folder `base`; an absolute `rel` is returned as it is.
std::string join_path(const std::string& base, const std::string& rel);

// An absolute path without "." and empty components. ".." stays: it may follow a symbolic link.
inline std::string plain_path(std::string_view path) { return join_parts(cut_path(path).parts); }

// For canonical paths: "/" or "/a/b" without a trailing slash.
bool is_beneath(std::string_view path, std::string_view folder);         // a folder is beneath itself
std::pair<std::string, std::string> split_last(const std::string& path); // parent and name; "/" has no name

} // namespace tinykvm
