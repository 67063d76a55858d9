// The values shown by the synthetic files of /proc and /sys.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tinykvm/abi/guest_kernel.hpp"

namespace tinykvm {

// The same for every machine of a program.
struct ProgramFacts {
    std::string program = "/";          // guest path of the program: /proc/self/exe
    std::vector<std::string> arguments; // /proc/self/cmdline
    std::string cwd = "/";              // guest path; may be looked up and entered without a permission
    unsigned cpus = 1;
    std::uint64_t memory_bytes = 1ull << 30;
    std::uint32_t uid = 0, gid = 0;
    std::string kernel_release = "6.1.0-kvmserver"; // the same as in uname (guest/misc.cpp)
};

// The values of /proc/self that change as the program runs.
struct SelfNumbers {
    abi::SelfState state; // as the guest kernel reports it, not trusted
    std::uint64_t mapped_bytes, resident_bytes, peak_bytes;
    std::uint32_t parent; // as `state`; 0: abi::kParentPid
};

// The values of one machine, read when a file is opened.
struct SelfFacts {
    std::uint32_t pid = 1; // /proc/PID is /proc/self; every other process is hidden
    // Returns the text of /proc/self/maps. If not set, the file is empty.
    std::function<std::string()> maps = {};
    std::function<SelfNumbers()> numbers = {}; // if not set, all numbers are 0
};

} // namespace tinykvm
