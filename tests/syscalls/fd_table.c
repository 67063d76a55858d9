// The table of descriptors: numbers, copies, flags, limits.
#include "transcript.h"

#include <dirent.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

static void copies(void) {
    section("copies");
    char c;
    int fd = CALL(open("file", O_RDWR | O_CREAT, 0600));
    CALL(dup(fd));
    CALL(dup(fd));
    CALL(close(4));
    CALL(dup(fd));
    CALL(dup2(fd, 4));
    CALL(dup2(fd, fd));
    CALL(dup2(fd, 100));
    CALL(write(100, "x", 1));
    CALL(pread(5, &c, 1, 0));
    CALL(dup(99));
    CALL(dup2(99, 3));
    CALL(dup2(fd, -1));
    CALL(dup2(99, 99));
    CALL(dup3(fd, fd, 0));
    CALL(dup3(fd, 101, O_CLOEXEC));
    CALL(fcntl(101, F_GETFD));
    CALL(dup3(fd, 101, 0x777));
    CALL(fcntl(fd, F_DUPFD, 50));
    CALL(fcntl(fd, F_DUPFD_CLOEXEC, 50));
    CALL(fcntl(51, F_GETFD));
    CALL(fcntl(fd, F_DUPFD, -1));
    CALL(fcntl(fd, F_DUPFD, 100000000));
    CALL(close(-1));
    CALL(fcntl(3, 9999));
    CALL(fcntl(99, F_GETFD));
}

static void flags(void) {
    section("flags");
    int a = CALL(open("file", O_RDWR | O_APPEND)), b = CALL(dup(a));
    CALL(fcntl(a, F_SETFD, FD_CLOEXEC));
    CALL(fcntl(a, F_GETFD));
    CALL(fcntl(b, F_GETFD));
    CHECK((fcntl(b, F_GETFL) & (O_APPEND | O_NONBLOCK | O_ACCMODE)) == (O_APPEND | O_RDWR));
    CALL(fcntl(a, F_SETFL, O_NONBLOCK));
    CHECK((fcntl(b, F_GETFL) & (O_APPEND | O_NONBLOCK | O_ACCMODE)) == (O_NONBLOCK | O_RDWR));
    CALL(close(a)), CALL(close(b));
    int fds[2];
    MUST(pipe(fds));
    char c;
    CALL(ioctl(fds[0], FIONBIO, &(int){1}));
    CHECK(fcntl(fds[0], F_GETFL) & O_NONBLOCK);
    CHECK(!(fcntl(fds[1], F_GETFL) & O_NONBLOCK));
    CALL(read(fds[0], &c, 1));
    CALL(ioctl(fds[0], FIOCLEX));
    CALL(fcntl(fds[0], F_GETFD));
    CALL(ioctl(fds[0], FIONCLEX));
    CALL(fcntl(fds[0], F_GETFD));
    CALL(ioctl(fds[0], 0x12345678, 0));
    CALL(isatty(fds[0]));
    CALL(ioctl(99, FIONBIO, &(int){1}));
    int pair[2], file = MUST(open("file", O_RDWR));
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair)); // as nginx does before it forks
    CALL(ioctl(pair[0], FIOASYNC, &(int){1}));
    CALL(ioctl(fds[1], FIOASYNC, &(int){1}));
    CALL(ioctl(file, FIOASYNC, &(int){1}));
    CALL(ioctl(file, FIOASYNC, &(int){0}));
    CALL(ioctl(pair[0], FIOASYNC, NULL));
    close(pair[0]), close(pair[1]), close(file);
    close(fds[0]), close(fds[1]);
}

static void ranges(void) {
    section("close_range");
    for (int fd = 60; fd < 64; fd++) MUST(dup2(0, fd));
    CALL(close_range(61, 62, 0));
    for (int fd = 60; fd < 64; fd++) SAY("%d: %s", fd, fcntl(fd, F_GETFD) < 0 ? "closed" : "open");
    CALL(close_range(60, 63, CLOSE_RANGE_CLOEXEC));
    CALL(fcntl(63, F_GETFD));
    CALL(close_range(63, 60, 0));
    CALL(close_range(3, ~0u, 0));
    CALL(fcntl(100, F_GETFD));
    CALL(open("file", O_RDONLY));
    CALL(close(3));
}

static void listing(void) {
    section("/proc/self/fd");
    MUST(dup2(0, 7));
    char target[4096], here[4000], wanted[4096];
    int fd = MUST(open("file", O_RDONLY));
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t n = CALL(readlink(name, target, sizeof target - 1) > 0) ? readlink(name, target, sizeof target - 1) : 0;
    target[n] = 0;
    snprintf(wanted, sizeof wanted, "%s/file", getcwd(here, sizeof here));
    CHECK(strcmp(target, wanted) == 0);
    close(fd);
    close(7);
}

static void limits(void) {
    section("limits");
    struct rlimit old, small = {20, 0};
    CALL(getrlimit(RLIMIT_NOFILE, &old));
    small.rlim_max = old.rlim_max;
    CALL(setrlimit(RLIMIT_NOFILE, &small));
    int last = -1, fd;
    while ((fd = open("file", O_RDONLY)) >= 0) last = fd;
    SAY("the last is %d, then %s", last, strerrorname_np(errno));
    CALL(dup(3));
    CALL(eventfd(0, 0));
    int fds[2];
    CALL(pipe(fds));
    CALL(dup2(3, 20));
    CALL(dup2(3, 19));
    CALL(close(19));
    CALL(pipe(fds));
    CALL(dup(3));
    CALL(fcntl(3, F_DUPFD, 20));
    CALL(setrlimit(RLIMIT_NOFILE, &(struct rlimit){50, 40}));
    CALL(setrlimit(99, &small));
    CALL(getrlimit(99, &small));
    CALL(setrlimit(RLIMIT_NOFILE, &old));
    CALL(dup(3));
    CALL(getrlimit(RLIMIT_STACK, &old));
    CALL(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &old));
}

int main(void) {
    copies();
    flags();
    ranges();
    listing();
    limits();
}
