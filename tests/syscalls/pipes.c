// Pipes: blocking and not, full and empty, ends that close.
#include "transcript.h"

#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>

static char big[200000];
static int fds[2];
static volatile int closed_signals;

static void closed(int signal) { (void)signal, closed_signals++; }

static void basics(void) {
    section("basics");
    char b[32] = "";
    int waiting = -1;
    struct stat st;
    CALL(pipe(fds));
    SAY("ends %d %d", fds[0], fds[1]);
    CALL(write(fds[1], "hello", 5));
    CALL(ioctl(fds[0], FIONREAD, &waiting));
    SAY("%d bytes wait", waiting);
    CALL(read(fds[0], b, 2));
    CALL(read(fds[0], b + 2, 20));
    SAY("'%s'", b);
    struct iovec out[] = {{"one ", 4}, {"two ", 4}, {"three", 5}}, in[] = {{b, 6}, {b + 6, 20}};
    CALL(writev(fds[1], out, 3));
    CALL(readv(fds[0], in, 2));
    SAY("'%s'", b);
    CALL(read(fds[1], b, 1));
    CALL(write(fds[0], b, 1));
    CALL(lseek(fds[0], 0, SEEK_SET));
    CALL(pread(fds[0], b, 1, 0));
    CALL(write(fds[1], "", 0));
    CALL(fstat(fds[0], &st));
    CHECK(S_ISFIFO(st.st_mode));
    CALL(fsync(fds[0]));
    CALL(ftruncate(fds[1], 0));
    CHECK((fcntl(fds[0], F_GETFL) & O_ACCMODE) == O_RDONLY && (fcntl(fds[1], F_GETFL) & O_ACCMODE) == O_WRONLY);
    say_ready("empty, read end", fds[0]);
    say_ready("empty, write end", fds[1]);
    CALL(write(fds[1], "x", 1));
    say_ready("filled, read end", fds[0]);
    CALL(close(fds[0]));
    CALL(close(fds[1]));
    CALL(pipe2(fds, 0x77777777));
}

static void without_waiting(void) {
    section("without waiting");
    CALL(pipe2(fds, O_NONBLOCK | O_CLOEXEC));
    CHECK((fcntl(fds[1], F_GETFL) & O_NONBLOCK) && fcntl(fds[0], F_GETFD) == FD_CLOEXEC);
    CALL(read(fds[0], big, 10));
    CALL(fcntl(fds[0], F_GETPIPE_SZ));
    CALL(write(fds[1], big, sizeof big));
    CALL(write(fds[1], big, 1));
    say_ready("full, write end", fds[1]);
    CALL(read(fds[0], big, 100));
    CALL(write(fds[1], big, 4096));
    CALL(read(fds[0], big, 4096));
    CALL(write(fds[1], big, 4096));
    CALL(read(fds[0], big, sizeof big));
    CALL(read(fds[0], big, sizeof big));
    CALL(close(fds[0]));
    CALL(close(fds[1]));
}

static void endings(void) {
    section("ends that close");
    struct sigaction action = {.sa_handler = closed};
    MUST(sigaction(SIGPIPE, &action, NULL));
    CALL(pipe(fds));
    int copy = CALL(dup(fds[1]));
    CALL(write(copy, "last", 4));
    CALL(close(copy));
    CALL(fcntl(fds[0], F_SETFL, O_NONBLOCK));
    CALL(read(fds[0], big, 10));
    CALL(read(fds[0], big, 10));
    CALL(close(fds[1]));
    CALL(read(fds[0], big, 10));
    say_ready("writers gone, read end", fds[0]);
    CALL(close(fds[0]));
    CALL(pipe(fds));
    CALL(close(fds[0]));
    say_ready("readers gone, write end", fds[1]);
    CALL(write(fds[1], "x", 1));
    SAY("%d SIGPIPE", closed_signals);
    signal(SIGPIPE, SIG_IGN);
    CALL(write(fds[1], "x", 1));
    CALL(close(fds[1]));
}

static void *write_all(void *unused) {
    for (size_t i = 0; i < sizeof big; i++) big[i] = (char)(i % 251);
    ssize_t n = write(fds[1], big, sizeof big);
    close(fds[1]);
    return (void *)(n == (ssize_t)sizeof big ? unused : (void *)1);
}

static void *write_later(void *unused) {
    sleep_ms(20);
    MUST(write(fds[1], "later", 5));
    return unused;
}

static void *close_later(void *unused) {
    sleep_ms(20);
    close(fds[1]);
    return unused;
}

static void threads(void) {
    section("waiting for another thread");
    pthread_t thread;
    void *result;
    MUST(pipe(fds));
    pthread_create(&thread, NULL, write_all, NULL);
    size_t got = 0, wrong = 0;
    static unsigned char part[3000];
    for (ssize_t n; (n = read(fds[0], part, sizeof part)) > 0; got += (size_t)n)
        for (ssize_t i = 0; i < n; i++) wrong += part[i] != (got + (size_t)i) % 251;
    pthread_join(thread, &result);
    SAY("read %zu, %zu wrong, the write was %s", got, wrong, result ? "cut short" : "whole");
    CALL(close(fds[0]));
    MUST(pipe(fds));
    pthread_create(&thread, NULL, write_later, NULL);
    CALL(read(fds[0], big, sizeof big));
    pthread_join(thread, NULL);
    pthread_create(&thread, NULL, close_later, NULL);
    CALL(read(fds[0], big, sizeof big));
    pthread_join(thread, NULL);
    CALL(close(fds[0]));
}

int main(void) {
    basics();
    without_waiting();
    endings();
    threads();
}
