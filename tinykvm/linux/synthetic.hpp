// Synthetic files, which the guest sees without any permission: a small /proc and /sys.
//
// The host's /proc/self would be that of the VMM, and the guest must not see other processes. Both are hidden whatever
// the permissions say. A synthetic file hides the host's file at the same path.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tinykvm/base/unique_fd.hpp"
#include "tinykvm/linux/program_facts.hpp"

namespace tinykvm {

class SyntheticFiles {
public:
    enum class Kind {
        none,      // not synthetic: the host's file, if it is permitted
        file,      // see content()
        link,      // see target()
        directory, // may be looked up and passed through, not listed
        hidden,    // always ENOENT
        no_device, // ENXIO: the machine has no controlling terminal
        stdio,     // /dev/stdin, /dev/stdout, /dev/stderr: stdio_fd()
    };

    explicit SyntheticFiles(ProgramFacts facts) : facts_(std::move(facts)) {}

    // Replaces the machine's /proc/PID and /proc/thread-self by /proc/self.
    std::string canonical(std::string_view path, const SelfFacts& self) const;

    // The functions below take paths returned by canonical().
    Kind kind(std::string_view path) const;
    // Whether the path is a folder above a synthetic file: it exists for the guest even if the host lacks it.
    bool leads_to_file(std::string_view path) const;
    std::string content(std::string_view path, const SelfFacts& self) const;
    std::string target(std::string_view path) const;
    int stdio_fd(std::string_view path) const;
    // A sealed memfd holding content(); throws HostError.
    UniqueFd open(std::string_view path, const SelfFacts& self) const;

    static std::vector<std::string> file_paths();
    // Devices that can be read and written without permission.
    static const std::vector<std::string>& free_devices();

private:
    ProgramFacts facts_;
};

} // namespace tinykvm
