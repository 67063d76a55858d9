// Child processes of a command or of the API, usually of this binary.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::ops {

inline constexpr const char* kSelf = "/proc/self/exe";

// A child process without stdin, whose stdout and stderr go to `output`. It is killed with this object, and when the
// thread that started it ends.
class Child {
public:
    // `keep`: descriptors that stay open in it.
    Child(const std::vector<std::string>& argv, const std::string& folder, int output, std::vector<int> keep = {});
    ~Child(); // kills the process
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    int wait();                       // its status as a shell reports it
    tinykvm::UniqueFd end_fd() const; // readable when it has ended

private:
    pid_t pid_ = -1;
    std::string name_;
    std::optional<int> status_;
};

// How to start a child process. Its stdin is /dev/null, and no signal is blocked in it or has a handler.
struct ChildStart {
    std::string folder;
    int output = -1;            // its stdout
    int error = -1;             // its stderr
    std::vector<int> keep = {}; // descriptors that stay open in it
    bool own_group = false;     // a process group of its own
};
// Returns its process id. The child is killed when the thread that started it ends. Throws HostError; if argv[0] cannot
// be started, the child's status is 126, as with a shell.
pid_t start_child(const std::vector<std::string>& argv, const ChildStart& start);

int shell_status(int status); // of waitpid(2), as a shell reports it

// The exit code of a command whose kvmserver child ended with `status`. The child's code is kept if it concerns the
// task, not the way the child was called; otherwise it is `failure`.
tinykvm::ExitCode exit_code_of(int status);

// A memfd, for output that is shown only on failure.
tinykvm::UniqueFd memory_file(const char* name);
std::string text_of(int fd, std::size_t most = 1 << 16); // from its beginning

} // namespace kvmserver::ops
