// A thousand threads, and the ends of threads.
#include "transcript.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

static atomic_int count;
static __thread int own = 5;
static void *counts(void *arg) {
    own += (int)(intptr_t)arg;
    count++;
    return (void *)(intptr_t)own;
}
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int go;
static void *waits(void *arg) {
    (void)arg;
    pthread_mutex_lock(&mutex);
    count++;
    while (!go) pthread_cond_wait(&condition, &mutex);
    count--;
    pthread_mutex_unlock(&mutex);
    return NULL;
}
static pthread_mutex_t robust;
static void *dies_with_it(void *arg) {
    (void)arg;
    pthread_mutex_lock(&robust);
    return NULL;
}
static void *sleeps(void *arg) {
    (void)arg;
    sleep_ms(100000);
    return NULL;
}
static void *blocks(void *arg) {
    char c;
    (void)!read(*(int *)arg, &c, 1);
    return NULL;
}
static pthread_t main_thread;
static void *goes_on(void *arg) {
    (void)arg;
    SAY("join of the main thread: %d", pthread_join(main_thread, NULL));
    pthread_attr_t attributes;
    void *low;
    size_t size;
    MUST(pthread_getattr_np(pthread_self(), &attributes));
    MUST(pthread_attr_getstack(&attributes, &low, &size));
    char here;
    CHECK(&here > (char *)low && &here < (char *)low + size);
    SAY("ends the process");
    exit(7);
}

int main(void) {
    static pthread_t threads[1000];
    main_thread = pthread_self();
    section("one after the other");
    int right = 0;
    for (int i = 0; i < 1000; i++) {
        void *result;
        MUST(pthread_create(&threads[0], NULL, counts, (void *)(intptr_t)i));
        MUST(pthread_join(threads[0], &result));
        right += (intptr_t)result == 5 + i;
    }
    SAY("%d ran, %d right", count, right);
    section("at once");
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    count = 0;
    int made = 0;
    for (int i = 0; i < 900; i++) made += pthread_create(&threads[i], &small, waits, NULL) == 0;
    SAY("%d made", made);
    while (count < made) sleep_ms(1);
    pthread_mutex_lock(&mutex);
    go = 1;
    pthread_cond_broadcast(&condition);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < made; i++) pthread_join(threads[i], NULL);
    SAY("%d left", count);
    section("detached");
    count = 0;
    pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
    for (int i = 0; i < 500; i++) {
        while (pthread_create(&threads[0], &small, counts, NULL) != 0) sched_yield();
    }
    while (count < 500) sched_yield();
    SAY("%d ran", count);
    section("robust");
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &attributes);
    MUST(pthread_create(&threads[0], NULL, dies_with_it, NULL));
    pthread_join(threads[0], NULL);
    SAY("lock: %s", strerrorname_np(pthread_mutex_lock(&robust)));
    SAY("consistent: %d", pthread_mutex_consistent(&robust));
    SAY("unlock %d", pthread_mutex_unlock(&robust));
    SAY("lock %d", pthread_mutex_lock(&robust));
    section("the stack of the main thread");
    pthread_attr_t mine;
    void *low;
    size_t size;
    MUST(pthread_getattr_np(pthread_self(), &mine));
    MUST(pthread_attr_getstack(&mine, &low, &size));
    char here;
    CHECK(&here > (char *)low && &here < (char *)low + size);
    CHECK(size > 7 << 20 && size <= 8 << 20); // less than the limit by where the kernel put it
    section("the process ends while others block");
    static int ends[2];
    MUST(pipe(ends));
    MUST(pthread_create(&threads[0], NULL, sleeps, NULL));
    MUST(pthread_create(&threads[1], NULL, blocks, &ends[0]));
    MUST(pthread_create(&threads[2], NULL, goes_on, NULL));
    pthread_exit(NULL);
}
