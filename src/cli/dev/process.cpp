#include "src/cli/dev/process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tinykvm/base/error.hpp"

namespace kvmserver::cli::dev {
namespace {

using tinykvm::UniqueFd;

int shell_status(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

// Runs between fork and exec: system calls only. Exits with 126 on failure, as a shell does.
[[noreturn]] void become(char* const* argv, const char* folder, int null, int output, int keep, pid_t parent) {
    sigset_t none;
    sigemptyset(&none);
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    if (::getppid() != parent) // the parent ended before prctl
        ::_exit(126);
    const bool ready = ::dup2(null, STDIN_FILENO) >= 0 && ::dup2(output, STDOUT_FILENO) >= 0 &&
                       (keep < 0 || ::fcntl(keep, F_SETFD, 0) >= 0) && ::chdir(folder) >= 0;
    if (ready)
        ::execv(argv[0], argv);
    const char* const parts[] = {"kvmserver: cannot start ", argv[0], ": ", std::strerror(errno), "\n"};
    for (const char* part : parts)
        if (::write(STDERR_FILENO, part, std::strlen(part)) < 0)
            break;
    ::_exit(126);
}

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

Process::Process(const std::vector<std::string>& argv, const std::string& folder, Stdout where, int keep) {
    std::vector<char*> words;
    words.reserve(argv.size() + 1);
    for (const std::string& word : argv)
        words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!null)
        tinykvm::throw_errno("open /dev/null");
    UniqueFd write_end;
    if (where == Stdout::captured)
        out_ = pipe_to(write_end);
    const int output = write_end ? write_end.get() : STDERR_FILENO;
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0)
        tinykvm::throw_errno("fork");
    if (pid_ == 0)
        become(words.data(), folder.c_str(), null.get(), output, keep, parent);
    ::setpgid(pid_, pid_); // in parent and child, so that it is done whichever runs first
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
            status_ = shell_status(status);
    }
    return status_;
}

void Process::ask_to_end() {
    if (!status_)
        ::kill(-pid_, SIGTERM);
}

} // namespace kvmserver::cli::dev
