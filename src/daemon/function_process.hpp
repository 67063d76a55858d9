// One process that serves one version of a function (src/runner/function_worker.hpp), seen from the daemon.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "src/daemon/control_groups.hpp"
#include "src/jail/plan.hpp"
#include "src/protocol/worker_messages.hpp"
#include "src/store/snapshots/stored_snapshot.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

class CacheService;

struct FunctionProgram {
    std::string name;     // "hello v4"
    std::string function; // "hello"
    const store::StoredSnapshot* snapshot = nullptr;
    std::string after_restore; // path of the hook; "": none
    std::string values;        // its body
    std::string environment;   // "NAME=VALUE" and a NUL each
    std::string ceilings;      // what it is granted at most (ceilings_text); "": no ceilings
    bool tell_excess = false;  // it says what its snapshot claims above that
    std::string jail;          // what is left open of its jail: jail::to_text()
    GroupLimits limits{};      // of its control group
    std::string tenant{};      // its memory is shared with functions of the same tenant only
};

class FunctionProcess {
public:
    // One that gets ready for any function, with memory for `ahead_bytes` of its snapshot, and waits. Throws
    // HostError. `groups`: where it has one; null: it has none.
    FunctionProcess(std::uint64_t ahead_bytes, jail::Mode mode, ControlGroups* groups);
    // One that ends with the thread that made it, whatever it is doing then. Throws HostError.
    static FunctionProcess for_trial(const std::string& executable, jail::Mode mode, ControlGroups* groups = nullptr);
    // Which walls a jail lacks here, in words; "": none. It is of no use afterwards. Nothing: no answer in time. Throws
    // HostError.
    std::optional<std::string> missing_walls();
    // What it is to serve; once. Throws HostError, and UserError when the snapshot's files are not sound or
    // more than a process may have open; then it is of no use.
    void assign(const FunctionProgram& program, CacheService& cache);
    bool running() const;
    // Kills it, if it still runs.
    ~FunctionProcess();
    FunctionProcess(const FunctionProcess&) = delete;
    FunctionProcess& operator=(const FunctionProcess&) = delete;

    pid_t pid() const { return pid_; }
    int control_fd() const { return control_.get(); }
    int output_fd() const { return output_.get(); } // what its program prints, non-blocking
    int errors_fd() const { return errors_.get(); } // and its stderr
    int pid_fd() const { return pid_fd_.get(); }    // readable once it has ended
    void stop() { control_.reset(); }               // it ends when its machines have
    void kill();
    // After its end: "exited with status 7", "was killed by signal 11".
    std::string reap();

private:
    FunctionProcess(const std::string& executable, jail::Mode mode, ControlGroups* groups,
                    const std::vector<std::string>& more);

    std::unique_ptr<ControlGroup> group_; // null: none of its own
    pid_t pid_ = -1;
    tinykvm::UniqueFd pid_fd_, control_, output_, errors_;
};

} // namespace kvmserver::daemon
