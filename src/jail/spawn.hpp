// Starting a process that will put itself into a jail (enter.hpp): it begins in namespaces of its own.
#pragma once
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "src/jail/walls.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::jail {

struct Program {
    std::string executable;               // "/proc/self/exe" may be
    std::vector<std::string> words;       // with the name that it is called by
    std::vector<std::string> environment; // "NAME=VALUE": all that it has
    // Descriptors of ours and the numbers they have there; it inherits none else that are close-on-exec. stdin is
    // /dev/null.
    std::vector<std::pair<int, int>> given;
    int group = -1; // the cgroup.procs of the control group that it begins in; -1: ours
};

struct Spawned {
    pid_t pid = -1;
    tinykvm::UniqueFd pid_fd; // readable once it has ended
};

// In `/`, in a process group of its own, with usual signals. With `mode` other than off it has user (where we are not
// root), mount, process, IPC and UTS namespaces of its own, if they can be had: in_own_namespaces() tells it. Throws
// HostError.
Spawned spawn(const Program& program, Mode mode);

// Whether this process was started so: it is the first one of its process namespace.
bool in_own_namespaces();

} // namespace kvmserver::jail
