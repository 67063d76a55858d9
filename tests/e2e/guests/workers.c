// workers PORT main|thread|ends|daemon: listens, and forks three workers that accept, from its first thread or another,
// while a third waits. A worker answers "W WRONG N": its number, what is not as in a child of Linux (or "-"), and how
// many it has answered. Asked for "fork\n" it forks again, and answers with the error number. With "ends" the first
// worker ends; with "daemon" it becomes a daemon first.
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int listener, ends, pipes[2], pair[2];
static pid_t parent;
static timer_t timer;
static char *wiped, wrong[200];
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void expect(int holds, const char *what) {
    if (holds) return;
    if (*wrong) strcat(wrong, ",");
    strcat(wrong, what);
}

static void *wait_for_nothing(void *how) {
    char c;
    if (how) {
        pthread_mutex_lock(&lock);
        for (;;) pthread_cond_wait(&never, &lock);
    }
    return read(pipes[0], &c, 1) < 0 ? how : 0;
}

static void *nothing(void *p) { return p; }

static int listed(const char *file, const char *line) {
    static char all[8192];
    FILE *f = fopen(file, "r");
    size_t bytes = f ? fread(all, 1, sizeof all - 1, f) : 0;
    if (f) fclose(f);
    all[bytes] = 0;
    return strstr(all, line) != 0;
}

static void look(void) {
    char line[40];
    struct itimerval i;
    struct itimerspec s;
    sigset_t pending;
    pthread_t t;
    expect(getppid() == parent && getpid() != parent, "parent");
    expect(syscall(SYS_gettid) == getpid(), "tid");
    snprintf(line, sizeof line, "\nPPid:\t%d\n", parent);
    expect(listed("/proc/self/status", line), "PPid");
    expect(listed("/proc/self/status", "\nThreads:\t1\n"), "threads");
    expect(getitimer(ITIMER_REAL, &i) == 0 && i.it_value.tv_sec == 0 && i.it_value.tv_usec == 0, "itimer");
    expect(timer_gettime(timer, &s) < 0 && errno == EINVAL, "timer");
    expect(sigpending(&pending) == 0 && !sigismember(&pending, SIGUSR1), "pending");
    expect(waitpid(-1, 0, WNOHANG) < 0 && errno == ECHILD, "wait");
    expect(!*wiped, "wipe");
    close(pipes[1]), close(pair[1]);
    struct pollfd p[2] = {{pipes[0], POLLIN, 0}, {pair[0], POLLIN, 0}};
    expect(poll(p, 2, 0) == 0, "ends");
    expect(pthread_create(&t, 0, nothing, 0) == 0 && pthread_join(t, 0) == 0, "new-thread");
    expect(setsid() == getpid(), "setsid");
}

static void serve(int number) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (ends) exit(3);
    look();
    for (int n = 1;; ++n) {
        int s = accept(listener, 0, 0);
        char in[3000] = "", out[300];
        if (s < 0 || read(s, in, sizeof in - 1) <= 0) {
            close(s), --n;
            continue;
        }
        int bytes = snprintf(out, sizeof out, "%d %s %d", number, *wrong ? wrong : "-", n);
        if (!strcmp(in, "fork\n")) {
            pid_t child = fork();
            if (child == 0) _exit(0);
            bytes = snprintf(out, sizeof out, "%d", child < 0 ? errno : 0);
        }
        if (write(s, out, (size_t)bytes) < 0) exit(1);
        close(s);
    }
}

static void *watch(void *unused) {
    for (int i = 0; i < 3; ++i) {
        pid_t child = fork();
        if (child < 0) perror("fork"), exit(1);
        if (child == 0) serve(i);
    }
    while (wait(0) > 0) {}
    exit(1);
    return unused;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    if (!strcmp(argv[2], "daemon") && daemon(1, 1)) return 1;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    sigset_t usr1;
    pthread_t t;
    struct sigevent none = {.sigev_notify = SIGEV_NONE};
    listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (void *)&here, sizeof here) || listen(listener, 9) || pipe(pipes) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) {
        perror("bind");
        return 1;
    }
    sigemptyset(&usr1), sigaddset(&usr1, SIGUSR1), pthread_sigmask(SIG_BLOCK, &usr1, 0);
    raise(SIGUSR1);
    parent = getpid();
    ends = !strcmp(argv[2], "ends");
    setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_sec = 3600}, 0);
    timer_create(CLOCK_MONOTONIC, &none, &timer);
    timer_settime(timer, 0, &(struct itimerspec){.it_value.tv_sec = 3600}, 0);
    wiped = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(wiped, 4096, MADV_WIPEONFORK);
    *wiped = 1;
    pthread_create(&t, 0, wait_for_nothing, 0);
    pthread_create(&t, 0, wait_for_nothing, &one);
    if (!strcmp(argv[2], "thread")) {
        pthread_create(&t, 0, watch, 0);
        for (;;) pause();
    }
    watch(0);
}
