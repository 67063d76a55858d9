#include "src/cli/dev/process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "src/ops/child.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli::dev {
namespace {

using tinykvm::UniqueFd;

UniqueFd pipe_to(UniqueFd& write_end) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) < 0)
        tinykvm::throw_errno("pipe2");
    write_end = UniqueFd(ends[1]);
    UniqueFd read_end(ends[0]);
    ::fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
    return read_end;
}

} // namespace

Process::Process(const std::vector<std::string>& argv, const std::string& folder, Stdout where, std::vector<int> keep) {
    UniqueFd write_end;
    if (where == Stdout::captured)
        out_ = pipe_to(write_end);
    pid_ = ops::start_child(argv, {.folder = folder,
                                   .output = write_end ? write_end.get() : STDERR_FILENO,
                                   .error = STDERR_FILENO,
                                   .keep = std::move(keep),
                                   .own_group = true});
    pidfd_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    if (!pidfd_) {
        const int error = errno;
        ::kill(-pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        errno = error;
        tinykvm::throw_errno("pidfd_open");
    }
}

Process::~Process() {
    // Once reaped, the process id may belong to another process.
    if (status_)
        return;
    ::kill(-pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
}

std::optional<int> Process::poll() {
    siginfo_t ended{};
    if (!status_ && ::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        ended.si_pid == pid_) {
        ::kill(-pid_, SIGKILL); // kills what it left behind, before the id can be reused
        int status = 0;
        if (::waitpid(pid_, &status, 0) == pid_)
            status_ = ops::shell_status(status);
    }
    return status_;
}

void Process::ask_to_end() {
    if (!status_)
        ::kill(-pid_, SIGTERM);
}

} // namespace kvmserver::cli::dev
