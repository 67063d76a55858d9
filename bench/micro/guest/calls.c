// Measures, by its own clock, what is asked for: GET /inside/COUNT replies with the nanoseconds that COUNT took.
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "server.h"

// What the guest kernel answers without leaving the machine.
static void inside(unsigned long count) {
    while (count--)
        syscall(SYS_getppid);
}

// What it passes to the host: the least work there is for the host to do.
static void host(unsigned long count) {
    char byte;
    while (count--)
        syscall(SYS_getrandom, &byte, 1, 0);
}

static void clock_read(unsigned long count) {
    struct timespec now;
    while (count--)
        clock_gettime(CLOCK_MONOTONIC, &now);
}

static _Atomic int turn;

static void wait_for(int mine) {
    int whose;
    while ((whose = atomic_load(&turn)) != mine)
        syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, whose, NULL, NULL, 0);
}
static void pass_to(int other) {
    atomic_store(&turn, other);
    syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *second_thread(void *rounds) {
    for (unsigned long left = (unsigned long)rounds; left > 0; left--) {
        wait_for(1);
        pass_to(0);
    }
    return NULL;
}

// `count` switches from one thread to the other: a wake-up and a wait each.
static void futex_switch(unsigned long count) {
    pthread_t second;
    atomic_store(&turn, 0);
    if (pthread_create(&second, NULL, second_thread, (void *)(count / 2)) != 0)
        exit(1);
    for (unsigned long left = count / 2; left > 0; left--) {
        wait_for(0);
        pass_to(1);
    }
    pthread_join(second, NULL);
}

static const struct {
    const char *name;
    void (*run)(unsigned long count);
} kinds[] = {{"inside", inside}, {"host", host}, {"clock", clock_read}, {"futex", futex_switch}};

int main(void) {
    const int listener = listen_somewhere();
    for (;;) {
        const int connection = accept(listener, NULL, NULL);
        if (connection < 0)
            return 1;
        char word[16];
        unsigned long count;
        read_request(connection, word, &count);
        const unsigned long begin = now_ns();
        for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
            if (strcmp(word, kinds[i].name) == 0)
                kinds[i].run(count);
        reply_and_close(connection, now_ns() - begin);
    }
}
