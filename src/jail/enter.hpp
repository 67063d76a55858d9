// Puts the calling process into a jail. Both steps must be called while the process has a single thread.
#pragma once
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "src/jail/common_root.hpp"
#include "src/jail/plan.hpp"
#include "src/jail/system_calls.hpp"
#include "src/jail/walls.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::jail {

// Where the process's namespaces come from.
enum class Namespaces : std::uint8_t {
    spawned, // spawn() gave the process its own
    hosts,   // spawn() failed to: the process has the host's and cannot get others
    // The process makes them in enter(), except a PID namespace, which only a new process can be in
    // (pid_namespaces(7)). Instead, it sees only its own folder of /proc, and no system call that it may make reaches
    // another process by number. It keeps its user; root keeps its rights to files and to low ports, unless the mode is
    // strict.
    made,
};

// Builds the walls in steps, so that most of the work is done before the process knows what it will run.
class Jail {
public:
    // First step, before the plan is known. Must run before any untrusted input is read.
    // `hosts_network`: the host's network namespace, if the process is in the shared one (shared_network.hpp).
    Jail(Mode mode, Namespaces namespaces, tinykvm::UniqueFd hosts_network = {});

    // Mounts what nearly all plans show: `places`, for reading. The process may have to do without the host's /proc
    // from then on. For Namespaces::spawned; elsewhere, and if it fails, enter() does all of it.
    void prepare(const std::vector<std::string>& places);

    // Last step. Afterwards the process can reach only what the plan names, and descriptors that are already open.
    // Throws UserError (not_permitted) with Mode::strict when a wall is missing, and in any mode when the new root is
    // left half made.
    void enter(const Plan& plan);

    const std::vector<Missing>& missing() const { return missing_; }
    // After enter(): whether the process stays in the shared network namespace.
    bool shares_network() const { return shares_network_; }

private:
    void record_missing(Wall wall, const std::string& what); // records `what` and errno
    void make_namespaces();
    void make_network(); // of the process's own
    void choose_network(const Plan& plan);
    void own_file_system(const Plan& plan);
    bool restrict_paths(const OwnRoot& root, bool connect); // false, with errno, if that fails
    void drop_unneeded_rights();
    void drop_rights();

    Mode mode_;
    Namespaces namespaces_;
    bool user_namespace_ = false;
    bool stays_root_ = false;
    bool shares_network_;                // with functions that may not use the network
    unsigned user_ = 0;                  // user to become; 0: keep the current one
    tinykvm::UniqueFd user_map_;         // user namespace that maps our files to that user
    tinykvm::UniqueFd proc_;             // a procfs that shows only this process, or this process's folder of one
    tinykvm::UniqueFd network_;          // the host's network namespace, while the process is in another
    tinykvm::UniqueFd beneath_;          // that of pivot_beneath(); empty: there is none
    std::unique_ptr<CommonRoot> common_; // null: nothing is prepared
    // With Namespaces::made, computed on another thread, which has ended before the process enters its namespaces.
    std::future<SystemCalls> system_calls_;
    std::vector<Missing> missing_;
};

} // namespace kvmserver::jail
