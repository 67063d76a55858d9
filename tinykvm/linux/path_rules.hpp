// Which rights a canonical guest path has: the rules of --allow-read, --allow-write and --volume.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace tinykvm {

// A set of what may be done with a path.
using Rights = std::uint32_t;
inline constexpr Rights kLookup = 1; // it may be known to exist: stat, readlink, passing through
inline constexpr Rights kRead = 2;   // contents of a file, entries of a folder
inline constexpr Rights kWrite = 4;  // contents of a file
inline constexpr Rights kChange = 8; // create, remove, rename; owner, mode, times
inline constexpr Rights kExecute = 16;
inline constexpr Rights kReadRule = kLookup | kRead | kExecute;
inline constexpr Rights kWriteRule = kReadRule | kWrite | kChange;

// Rules are added while a Policy is made and only asked afterwards.
class PathRules {
public:
    // The path and everything beneath it; what leads to it may be looked up.
    void add(const std::string& path, Rights rights);
    // As `add`, but what a shorter rule says does not reach into a volume.
    void add_volume(const std::string& path, Rights rights);
    // Rules of the path and of what lies beneath it, but for volumes and what may be looked up.
    void drop_beneath(std::string_view path);
    // Only the path itself, and what leads to it.
    void add_lookup(const std::string& path);

    Rights of(std::string_view path) const;

private:
    struct Node {
        Rights rule = 0;   // reaches down
        Rights volume = 0; // reaches down, hides what comes from above
        bool is_volume = false;
        bool lookup = false;
    };
    struct Hash : std::hash<std::string_view> {
        using is_transparent = void;
    };
    const Node* find(std::string_view path) const;
    std::unordered_map<std::string, Node, Hash, std::equal_to<>> nodes_;
};

} // namespace tinykvm
