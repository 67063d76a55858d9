// The daemon's side of a function process, which serves one version of a function (src/runner/function_worker.hpp).
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
class TemplateProcess;
struct ComingPieces;

struct FunctionProgram {
    std::string name;     // "hello v4"
    std::string function; // "hello"
    const store::StoredSnapshot* snapshot = nullptr;
    std::string after_restore;              // path of the hook; "": none
    std::string values;                     // body of the hook's request
    std::string environment;                // "NAME=VALUE", each with a NUL
    std::string ceilings;                   // the most that it is granted (ceilings_text); "": no ceilings
    bool report_excess = false;             // whether it reports what its snapshot claims above them
    std::string jail;                       // what its jail leaves open: jail::to_text()
    GroupLimits limits{};                   // of its control group
    std::string tenant{};                   // it shares memory only with functions of this tenant
    unsigned rest_after_ms = 0;             // request machines rest after so long without a request; 0: never
    bool kept = false;                      // whether one machine keeps its state
    bool suspends = false;                  // whether that is saved when it is idle
    int state = -1;                         // then: the file where it was saved, or -1
    std::uint64_t state_bytes = UINT64_MAX; // what of the file is the state; or all of it
    bool state_grows = false;               // there are only some of its parts yet: see state_grew()
    int storage = -1;                       // its socket of StorageService; -1: it has no storage
    const ComingPieces* later = nullptr;    // null: it gets all pieces at once
};

class FunctionProcess {
public:
    // Starts a process that prepares for any function, with memory for `ahead_bytes` of a snapshot, and waits. `groups`
    // may be null: then it has no control group. It is forked from `parent`, if there is one and that works. Throws
    // HostError.
    FunctionProcess(std::uint64_t ahead_bytes, jail::Mode mode, ControlGroups* groups,
                    TemplateProcess* parent = nullptr);
    // Starts a process that is killed when the calling thread ends. Throws HostError.
    static std::unique_ptr<FunctionProcess> for_trial(const std::string& executable, jail::Mode mode,
                                                      ControlGroups* groups = nullptr);
    // Which walls a jail lacks on this host, as text; "": none. Nothing if there is no answer in time. The process
    // cannot be used afterwards. Throws HostError.
    std::optional<std::string> missing_walls();
    // Tells it what to serve; call once. Throws HostError, and UserError if the snapshot's files are invalid or more
    // than a process may have open. On an exception the process cannot be used.
    void assign(const FunctionProgram& program, CacheService& cache);
    // The state is so large now. `more`: and that is not all. False if it cannot be told.
    bool state_grew(std::uint64_t bytes, bool more);
    bool running() const;
    // Kills the process if it still runs.
    ~FunctionProcess();
    FunctionProcess(const FunctionProcess&) = delete;
    FunctionProcess& operator=(const FunctionProcess&) = delete;

    pid_t pid() const { return pid_; }
    int control_fd() const { return control_.get(); }
    int output_fd() const { return output_.get(); } // its stdout; non-blocking
    int errors_fd() const { return errors_.get(); } // its stderr; non-blocking
    int pid_fd() const { return pid_fd_.get(); }    // readable when it has ended
    void stop() { control_.reset(); }               // it ends when its machines have
    // It saves its machine's state in this empty file. False if it cannot be asked.
    bool suspend(int file);
    // It goes on, and saves the state meanwhile: Kind::checkpoint. `done`: the socket where it tells.
    bool checkpoint(int file, int done);
    // How many files it has been given so far, 16 at most. It is not trusted with the disk: it can write to any of
    // them.
    std::size_t files_given() const { return files_.size(); }
    // Kills it if one of them takes more than `most` bytes, and cuts that one. Returns whether it did.
    bool limit_files(std::uint64_t most);
    // All that suspend() gave it but the last: nobody will read them.
    void empty_earlier_files();
    void kill();
    // How it ended: "exited with status 7", "was killed by signal 11". Call after its end.
    std::string reap();

private:
    FunctionProcess(const std::string& executable, jail::Mode mode, ControlGroups* groups, std::uint64_t ahead_bytes,
                    const std::vector<std::string>& more, TemplateProcess* parent);
    struct GivenFile {
        tinykvm::UniqueFd file;
        bool of_checkpoint; // it may be on its way to another daemon
    };
    bool keep_file(int file, bool of_checkpoint);

    std::unique_ptr<ControlGroup> group_; // null: none
    pid_t pid_ = -1;
    tinykvm::UniqueFd pid_fd_, control_, output_, errors_;
    std::vector<GivenFile> files_; // to write to
};

} // namespace kvmserver::daemon
