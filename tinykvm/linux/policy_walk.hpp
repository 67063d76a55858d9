// Private to Policy: the result of walking a guest path.
#pragma once
#include <string>
#include <vector>

#include "tinykvm/linux/policy.hpp"

namespace tinykvm {

struct Policy::Walk {
    std::string path = "/"; // canonical as far as it exists, the rest as written
    int error = 0;          // why the last component could not be reached
    bool exists = true;
    bool is_directory = true;
    bool is_link = false;    // the last component is a symlink and was not followed
    bool is_virtual = false; // a folder that exists only because it leads to a volume or a synthetic file
    bool must_be_directory = false;
    SyntheticFiles::Kind synthetic = SyntheticFiles::Kind::none;
    std::vector<std::string> links; // symlinks that were followed
    bool raced = false;             // the file system changed during the walk: walk again
};

// A walk that finds a component replaced starts again. A guest that keeps replacing components gets ELOOP after this
// many attempts.
inline constexpr int kWalkAttempts = 128;

} // namespace tinykvm
