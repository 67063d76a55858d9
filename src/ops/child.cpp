#include "src/ops/child.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tinykvm/base/error.hpp"

namespace kvmserver::ops {
namespace {

// Runs between fork and exec: system calls only. Exits with 126 on failure, as a shell does.
[[noreturn]] void become(char* const* argv, const ChildStart& start, int null, pid_t parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto fail = [&](const char* what, const char* name = "") {
        const char* const separator = *what ? ": " : "";
        const char* const parts[] = {"kvmserver: cannot start ", argv[0], ": ", what, name, separator,
                                     std::strerror(errno),       "\n"};
        for (const char* part : parts)
            if (::write(STDERR_FILENO, part, std::strlen(part)) < 0)
                break;
        ::_exit(126);
    };
    if (::getppid() != parent) // the parent ended before prctl
        ::_exit(126);
    if (start.own_group)
        ::setpgid(0, 0);
    if (::dup2(null, STDIN_FILENO) < 0 || ::dup2(start.output, STDOUT_FILENO) < 0 ||
        ::dup2(start.error, STDERR_FILENO) < 0)
        fail("its descriptors");
    for (const int kept : start.keep)
        if (::fcntl(kept, F_SETFD, 0) < 0)
            fail("its descriptors");
    ::signal(SIGPIPE, SIG_DFL);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr); // a daemon's threads block signals that must end its children
    if (::chdir(start.folder.c_str()) < 0)
        fail("its folder ", start.folder.c_str());
    ::execv(argv[0], argv);
    fail("");
    ::_exit(126);
}

} // namespace

pid_t start_child(const std::vector<std::string>& argv, const ChildStart& start) {
    std::vector<char*> words;
    words.reserve(argv.size() + 1);
    for (const std::string& word : argv)
        words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    const tinykvm::UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!null)
        tinykvm::throw_errno("open /dev/null");
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child < 0)
        tinykvm::throw_errno("fork");
    if (child == 0)
        become(words.data(), start, null.get(), parent);
    if (start.own_group)
        ::setpgid(child, child); // in parent and child, so that it is done whichever runs first
    return child;
}

int shell_status(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

Child::Child(const std::vector<std::string>& argv, const std::string& folder, int output, std::vector<int> keep)
    : pid_(start_child(argv, {.folder = folder, .output = output, .error = output, .keep = std::move(keep)})),
      name_(argv.front()) {}

Child::~Child() {
    if (status_)
        return;
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
}

int Child::wait() {
    int status = 0;
    while (!status_) {
        if (::waitpid(pid_, &status, 0) == pid_)
            status_ = shell_status(status);
        else if (errno != EINTR)
            tinykvm::throw_errno("wait for " + name_);
    }
    return *status_;
}

tinykvm::UniqueFd Child::end_fd() const {
    tinykvm::UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0))); // pidfds are always close-on-exec
    if (!fd)
        tinykvm::throw_errno("pidfd_open " + name_);
    return fd;
}

tinykvm::ExitCode exit_code_of(int status) {
    using tinykvm::ExitCode;
    for (const ExitCode code : {ExitCode::not_found, ExitCode::not_permitted, ExitCode::unreachable,
                                ExitCode::bad_snapshot, ExitCode::no_kvm})
        if (status == static_cast<int>(code))
            return code;
    return ExitCode::failure;
}

tinykvm::UniqueFd memory_file(const char* name) {
    tinykvm::UniqueFd fd(::memfd_create(name, MFD_CLOEXEC));
    if (!fd)
        tinykvm::throw_errno(std::string("memfd_create ") + name);
    return fd;
}

std::string text_of(int fd, std::size_t most) {
    std::string text(most, '\0');
    const ssize_t count = ::pread(fd, text.data(), text.size(), 0);
    text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return text;
}

} // namespace kvmserver::ops
