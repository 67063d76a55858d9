// Files that exist for the guest although no permission shows it the host's: a small /proc and /sys.
//
// The host's own /proc/self would be that of the VMM, and other processes are none of the guest's business:
// both are hidden whatever the permissions say. What is made up here wins over the host's file.
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
        none,      // nothing is made up: the host's file, if it is permitted
        file,      // content()
        link,      // target()
        directory, // may be looked up and passed through, not listed
        hidden,    // ENOENT for ever
        no_device, // ENXIO: there is no terminal of the machine's own
        stdio,     // /dev/stdin, /dev/stdout, /dev/stderr: stdio_fd()
    };

    explicit SyntheticFiles(ProgramFacts facts) : facts_(std::move(facts)) {}

    // /proc/PID of the machine and /proc/thread-self become /proc/self.
    std::string canonical(std::string_view path, const SelfFacts& self) const;

    // The rest take what canonical() returned.
    Kind kind(std::string_view path) const;
    // A folder above a made-up file: it exists for the guest although the host may lack it.
    bool leads_to_file(std::string_view path) const;
    std::string content(std::string_view path, const SelfFacts& self) const;
    std::string target(std::string_view path) const;
    int stdio_fd(std::string_view path) const;
    // A sealed memfd holding content(); throws HostError.
    UniqueFd open(std::string_view path, const SelfFacts& self) const;

    static std::vector<std::string> file_paths();
    // Devices that need no permission to be read and written.
    static const std::vector<std::string>& free_devices();

private:
    ProgramFacts facts_;
};

} // namespace tinykvm
