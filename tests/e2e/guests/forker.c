// forker PORT: accepts a connection, and leaves it to a child, for each. The child reads a line, does what it says, and
// answers "WRONG N": what is not as in a child of Linux (or "-"), and how many its parent has accepted.
//   close    closes what it listens on first      big     answers with 4,000,000 bytes, and ends at once
//   exit     ends without an answer, status 3     abort   ends by SIGABRT
//   twice    a child of its own answers           thread  answers from a thread, while another one waits
#include "server.h"

#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

static int listener, fd, pipes[2];
static pid_t parent;
static char wrong[200], line[100];
static long accepted;

static void expect(int holds, const char *what) {
    if (holds) return;
    if (*wrong) strcat(wrong, ",");
    strcat(wrong, what);
}

static void say(const char *text, size_t bytes) {
    while (bytes > 0) {
        const ssize_t done = write(fd, text, bytes);
        if (done <= 0) _exit(1);
        text += done, bytes -= (size_t)done;
    }
}

static void *answer(void *unused) {
    char out[300];
    say(out, (size_t)snprintf(out, sizeof out, "%s %ld", *wrong ? wrong : "-", accepted));
    exit(0);
    return unused;
}

static void *wait_for_nothing(void *unused) {
    char c;
    return read(pipes[0], &c, 1) < 0 ? unused : 0;
}

// Of a client's connection, and of what listens.
static int state(int socket) {
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    return getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) < 0 ? -errno : info.tcpi_state;
}

// False: the client has gone.
static int read_line(void) {
    size_t n = 0;
    memset(line, 0, sizeof line);
    while (n < sizeof line - 1 && !memchr(line, '\n', n)) {
        const ssize_t got = read(fd, line + n, sizeof line - 1 - n);
        if (got <= 0) return 0;
        n += (size_t)got;
    }
    return 1;
}

static void be_child(void) {
    expect(state(fd) == TCP_ESTABLISHED && state(listener) == TCP_LISTEN, "state");
    expect(getpid() != parent && getppid() == parent, "parent");
    expect(waitpid(-1, 0, WNOHANG) < 0 && errno == ECHILD, "wait");
    if (!read_line()) exit(0);
    if (!strcmp(line, "close\n")) close(listener);
    if (!strcmp(line, "exit\n")) exit(3);
    if (!strcmp(line, "abort\n")) abort();
    if (!strcmp(line, "big\n")) {
        static char out[4000000];
        memset(out, 'x', sizeof out);
        say(out, sizeof out);
        exit(0);
    }
    if (!strcmp(line, "twice\n")) {
        const pid_t before = getpid(), child = fork();
        if (child < 0) expect(0, strerror(errno));
        if (child > 0) { // it sees its parent's number while that lives
            waitpid(child, 0, 0);
            exit(0);
        }
        expect(child == 0 && getppid() == before, "grandparent");
    }
    if (!strcmp(line, "thread\n")) {
        pthread_t t;
        pthread_create(&t, 0, wait_for_nothing, 0);
        pthread_create(&t, 0, answer, 0);
        for (;;) pause();
    }
    answer(0);
}

int main(int argc, char **argv) {
    if (argc != 2 || pipe(pipes) < 0) return 2;
    listener = listen_on(atoi(argv[1]));
    signal(SIGCHLD, SIG_IGN);
    parent = getpid();
    for (;;) {
        fd = accept(listener, NULL, NULL);
        if (fd < 0) continue;
        ++accepted;
        parent = getpid();
        const pid_t child = fork();
        if (child == 0) be_child();
        if (child < 0) {
            const int error = errno;
            char out[20];
            // To close a connection with unread bytes would reset it, and its client might not read the answer.
            if (read_line()) say(out, (size_t)snprintf(out, sizeof out, "error %d", error));
        }
        close(fd);
    }
}
