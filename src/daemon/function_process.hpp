// One process that serves one version of a function: `kvmserver snaprun` on a socket that the daemon listens on.
#pragma once
#include <filesystem>
#include <string>

#include <sys/types.h>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

// The socket is there from the start, so clients connect before the process is ready: they wait in its backlog.
class FunctionProcess {
public:
    // Listens at `socket`, a path in a folder that nobody else may enter. Throws HostError, UserError.
    FunctionProcess(std::string name, const std::filesystem::path& socket, const std::filesystem::path& snapshot, unsigned machines);
    // Kills it, if it still runs.
    ~FunctionProcess();
    FunctionProcess(const FunctionProcess&) = delete;
    FunctionProcess& operator=(const FunctionProcess&) = delete;

    const std::string& name() const { return name_; }
    int output_fd() const { return output_.get(); } // what it writes, non-blocking
    int pid_fd() const { return pid_fd_.get(); }    // readable once it has ended
    void stop();                                    // asks it to end
    std::string reap();                             // after its end: "exited with status 7", "killed by signal 11"

private:
    std::string name_;
    std::filesystem::path socket_path_;
    tinykvm::UniqueFd listening_, output_, pid_fd_;
    pid_t pid_ = -1;
};

} // namespace kvmserver::daemon
