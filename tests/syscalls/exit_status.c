// Ends in the way that its argument names.
#include "transcript.h"

#include <pthread.h>

static const char *how;

static void at_exit(void) { SAY("atexit"); }

static void *from_thread(void *unused) {
    sleep_ms(10);
    if (strcmp(how, "exit-in-thread") == 0) exit(5);
    if (strcmp(how, "segv-in-thread") == 0) *(volatile int *)16 = 1;
    if (strcmp(how, "thread-goes-on") == 0) sleep_ms(30), SAY("the last thread");
    return unused;
}

int main(int argc, char **argv) {
    how = argc > 1 ? argv[1] : "0";
    SAY("how: %s", how);
    atexit(at_exit);
    pthread_t thread;
    if (strcmp(how, "abort") == 0) abort();
    if (strcmp(how, "segv") == 0) *(volatile int *)0 = 1;
    if (strcmp(how, "ill") == 0) __asm__("ud2");
    if (strcmp(how, "fpe") == 0) return 1 / (argc - 2);
    if (strcmp(how, "term") == 0) raise(SIGTERM);
    if (strcmp(how, "kill") == 0) kill(getpid(), SIGKILL);
    if (strcmp(how, "rt") == 0) raise(SIGRTMIN + 3);
    if (strcmp(how, "pipe") == 0) {
        int fds[2];
        MUST(pipe(fds));
        close(fds[0]);
        MUST(write(fds[1], "x", 1));
    }
    if (strcmp(how, "quick") == 0) _exit(9);
    if (strcmp(how, "ignored") == 0) {
        signal(SIGSEGV, SIG_IGN);
        *(volatile int *)0 = 1;
    }
    if (strcmp(how, "blocked") == 0) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, NULL);
        *(volatile int *)0 = 1;
    }
    if (strstr(how, "thread")) {
        pthread_create(&thread, NULL, from_thread, NULL);
        if (strcmp(how, "thread-goes-on") == 0) pthread_exit(NULL);
        if (strcmp(how, "main-leaves-threads") == 0) return 4;
        pthread_join(thread, NULL);
    }
    return atoi(how);
}
