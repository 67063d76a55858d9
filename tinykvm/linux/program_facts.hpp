// What the synthesised files of /proc and /sys tell, as plain values.
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
    std::string cwd = "/";              // guest path; may be looked up and entered without asking
    unsigned cpus = 1;
    std::uint64_t memory_bytes = 1ull << 30;
    std::uint32_t uid = 0, gid = 0;
    std::string kernel_release = "6.1.0-kvmserver"; // what uname says (guest/misc.cpp)
};

// What of /proc/self changes as the program runs.
struct SelfNumbers {
    abi::SelfState state; // the guest kernel's own word
    std::uint64_t mapped_bytes, resident_bytes, peak_bytes;
};

// Of one machine, read when a file is opened.
struct SelfFacts {
    std::uint32_t pid = 1; // /proc/PID is /proc/self; every other process is hidden
    // The text of /proc/self/maps; without it the file holds nothing.
    std::function<std::string()> maps = {};
    std::function<SelfNumbers()> numbers = {}; // without it all are 0
};

} // namespace tinykvm
