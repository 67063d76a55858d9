// A process that `dev` starts, in a process group of its own. So its children end with it, and Ctrl-C in a terminal
// reaches only us.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::cli::dev {

class Process {
public:
    enum class Stdout {
        captured, // read out()
        stderr_,  // to our stderr, with messages
    };
    // `keep` are descriptors that stay open in it. Throws HostError. If argv[0] cannot be started, the status is 126.
    Process(const std::vector<std::string>& argv, const std::string& folder, Stdout where, std::vector<int> keep = {});
    ~Process(); // kills the group
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    int out() const { return out_.get(); }      // non-blocking; -1 after out_ended()
    int exited() const { return pidfd_.get(); } // readable when it has ended
    void out_ended() { out_.reset(); }
    std::optional<int> poll(); // its status as a shell reports it; nothing: it still runs
    void ask_to_end();         // sends SIGTERM to the group

private:
    pid_t pid_ = -1;
    tinykvm::UniqueFd out_, pidfd_;
    std::optional<int> status_;
};

} // namespace kvmserver::cli::dev
