// A server for debuggers: `debugged PORT [crash|spin]`. Two threads wait for ever. The request "crash" ends it by a
// signal, "spin" prints that it
// does and never ends; all else is answered "3".
#include "server.h"

#include <pthread.h>
#include <semaphore.h>

volatile unsigned long counted;
volatile double numbers[4] = {1.5, 2.5, 3.5, 4.5};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static sem_t begun;

static void *waits(void *name) {
    pthread_setname_np(pthread_self(), name);
    pthread_mutex_lock(&lock);
    sem_post(&begun);
    for (;;)
        pthread_cond_wait(&never, &lock);
    return NULL;
}

__attribute__((noinline)) int add(int a, int b) {
    const int sum = a + b;
    counted += (unsigned long)sum;
    return sum;
}

__attribute__((noinline)) void fault_here(int *where) { *where = 42; }

__attribute__((noinline, noreturn)) static void spin(void) {
    if (write(1, "spins\n", 6) < 0) exit(1);
    for (;;)
        add(1, 0);
}

__attribute__((noinline)) void answer(const char *line, char *out, size_t size) {
    int total = 0;
    for (int i = 0; i < 3; ++i)
        total = add(total, i);
    if (strcmp(line, "crash") == 0) fault_here((int *)0xdead0);
    if (strcmp(line, "spin") == 0) spin();
    snprintf(out, size, "%d\n", total);
}

int main(int argc, char **argv) {
    static char *names[2] = {"first", "second"};
    pthread_t thread;
    sem_init(&begun, 0, 0);
    for (int i = 0; i < 2; ++i) {
        pthread_create(&thread, NULL, waits, names[i]);
        sem_wait(&begun);
    }
    if (argc > 2 && strcmp(argv[2], "crash") == 0) fault_here((int *)0xdead0);
    if (argc > 2 && strcmp(argv[2], "spin") == 0) spin();
    serve(listen_on(atoi(argv[1])), answer);
}
