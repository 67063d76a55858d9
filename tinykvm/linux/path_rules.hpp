// The rights of canonical guest paths, from the rules of --allow-read, --allow-write and --volume.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace tinykvm {

// A set of rights to a path.
using Rights = std::uint32_t;
inline constexpr Rights kLookup = 1; // see that it exists: stat, readlink, passing through
inline constexpr Rights kRead = 2;   // contents of a file, entries of a folder
inline constexpr Rights kWrite = 4;  // contents of a file
inline constexpr Rights kChange = 8; // create, remove, rename; owner, mode, times
inline constexpr Rights kExecute = 16;
inline constexpr Rights kReadRule = kLookup | kRead | kExecute;
inline constexpr Rights kWriteRule = kReadRule | kWrite | kChange;

// Rules are added while a Policy is made, and are read-only afterwards.
class PathRules {
public:
    // Adds rights to the path and everything beneath it. Folders on the way to it may be looked up.
    void add(const std::string& path, Rights rights);
    // As add(), but rules of folders above do not apply inside a volume.
    void add_volume(const std::string& path, Rights rights);
    // Removes the rules of the path and of everything beneath it, except for volumes and lookup rights.
    void drop_beneath(std::string_view path);
    // Allows looking up the path itself and the folders on the way to it.
    void add_lookup(const std::string& path);

    Rights of(std::string_view path) const;

private:
    struct Node {
        Rights rule = 0;   // inherited by everything beneath
        Rights volume = 0; // inherited too, and replaces what is inherited from above
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
