// Private to Policy: what a walk over a guest path finds.
#pragma once
#include <string>
#include <vector>

#include "tinykvm/linux/policy.hpp"

namespace tinykvm {

struct Policy::Walk {
    std::string path = "/"; // canonical as far as it exists, the rest as written
    int error = 0;          // the last component could not be reached
    bool exists = true;
    bool is_directory = true;
    bool is_link = false;    // the last component, when it is not to be followed
    bool is_virtual = false; // a folder that only leads to a volume or to a made-up file
    bool must_be_directory = false;
    SyntheticFiles::Kind synthetic = SyntheticFiles::Kind::none;
    std::vector<std::string> links; // symlinks that were followed
    bool raced = false;             // something changed under way: walk again
};

// A link or folder that is swapped all the time makes walks start again; a guest that does this to itself
// gets ELOOP in the end.
inline constexpr int kWalkAttempts = 128;

} // namespace tinykvm
