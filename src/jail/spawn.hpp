// Starts a process in namespaces of its own. It then puts itself into a jail (enter.hpp).
#pragma once
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "src/jail/walls.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::jail {

struct Program {
    std::string executable;               // may be "/proc/self/exe"
    std::vector<std::string> words;       // argv, including argv[0]
    std::vector<std::string> environment; // "NAME=VALUE"; nothing is inherited
    // Our descriptors and their numbers in the child. It inherits no other descriptors that are close-on-exec. stdin is
    // /dev/null.
    std::vector<std::pair<int, int>> given;
    int group = -1; // cgroup.procs of the cgroup in which it starts; -1: ours
    // Otherwise it stays in ours, whatever the mode: it forks processes that get their own (fork_process()).
    bool own_namespaces = true;
};

struct Spawned {
    pid_t pid = -1;
    tinykvm::UniqueFd pid_fd; // readable once the process has ended
};

// Starts the program in `/`, in its own process group, with default signal dispositions. Unless `mode` is off, it gets
// its own mount, PID, IPC and UTS namespaces (and a user namespace unless we are root), if the host allows it; the
// child asks in_own_namespaces(). Throws HostError.
Spawned spawn(const Program& program, Mode mode);

// Forks the calling process, which has a single thread and was started by spawn() without namespaces of its own. The
// child is the caller's sibling: our parent waits for it. It gets descriptors and a group as spawn() gives them, its
// own process group, and namespaces if the host allows it. In the child, `pid` is 0. Throws HostError.
struct Forked {
    Spawned process;
    int error = 0; // errno: there is no process, or it has ended again
};
Forked fork_process(const std::vector<std::pair<int, int>>& given, int group, Mode mode);

// Whether spawn() or fork_process() gave this process its own namespaces: it is then the first process of its PID
// namespace.
bool in_own_namespaces();

} // namespace kvmserver::jail
