// The filter of system calls that a spawned process is given.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "src/jail/system_calls.hpp"
#include "tests/catch.hpp"

using kvmserver::jail::SystemCalls;
using tinykvm::UniqueFd;

namespace {

// How a process ends that is given `file`, or none: its status, or 128 and the signal.
int ending_with(int file, long call) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::prctl(PR_SET_DUMPABLE, 0);
        ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (file >= 0)
            ::dup2(file, SystemCalls::kGiven);
        else
            ::close(SystemCalls::kGiven);
        const bool restricted = SystemCalls::given().restrict();
        const bool there = ::fcntl(SystemCalls::kGiven, F_GETFD) >= 0;
        const long result = ::syscall(call, 0, 0, 0, 0, 0, 0);
        ::_exit(!restricted ? 1 : result < 0 && errno == ENOSYS ? 2 : there ? 3 : 0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

} // namespace

TEST_CASE("a process with the filter that it is given makes the system calls that it needs, and no others") {
    const UniqueFd file = SystemCalls::to_give();
    REQUIRE(file);
    CHECK(ending_with(file.get(), SYS_getpid) == 0); // and the file is closed
    CHECK(ending_with(file.get(), SYS_mount) == 128 + SIGSYS);
    CHECK(ending_with(file.get(), 9999) == 2);
    CHECK(::pwrite(file.get(), "", 1, 0) < 0); // nobody can change it
}

TEST_CASE("a process that is given no filter, or something else, has one all the same") {
    CHECK(ending_with(-1, SYS_getpid) == 0);
    CHECK(ending_with(-1, SYS_mount) == 128 + SIGSYS);
    const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC)), open(::memfd_create("not sealed", MFD_ALLOW_SEALING));
    for (const UniqueFd* const other : {&null, &open}) {
        CHECK(ending_with(other->get(), SYS_getpid) == 3); // it is not its own
        CHECK(ending_with(other->get(), SYS_mount) == 128 + SIGSYS);
    }
}
