// POSIX threads: mutexes, conditions, thread-local storage, barriers, cancellation, fifty at once.
#include "transcript.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>

enum { MANY = 50 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static __thread long mine = 7;
static long counter;
static pthread_t threads[MANY];

static void start_all(int n, void *(*run)(void *)) {
    for (long i = 0; i < n; i++) {
        int error = pthread_create(&threads[i], NULL, run, (void *)i);
        if (error) SAY("pthread_create %ld: %s", i, strerrorname_np(error)), exit(99);
    }
}

static long join_all(int n) {
    long sum = 0;
    for (int i = 0; i < n; i++) {
        void *result;
        pthread_join(threads[i], &result);
        sum += (long)result;
    }
    return sum;
}

static void *count(void *argument) {
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&mutex);
        counter++;
        pthread_mutex_unlock(&mutex);
        if (i % 100 == 0) sched_yield();
    }
    mine += (long)argument;
    return (void *)mine;
}

static void many(void) {
    section("fifty threads");
    start_all(MANY, count);
    SAY("results add up to %ld", join_all(MANY));
    SAY("counted to %ld, the main thread's own %ld", counter, mine);
    SAY("a thread joined twice or itself: %s", strerrorname_np(pthread_join(pthread_self(), NULL)));
}

static int turn;

static void *take_turns(void *argument) {
    int me = (int)(long)argument;
    for (int round = 0; round < 20; round++) {
        pthread_mutex_lock(&mutex);
        while (turn % 5 != me) pthread_cond_wait(&condition, &mutex);
        turn++;
        pthread_cond_broadcast(&condition);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static void conditions(void) {
    section("conditions");
    start_all(5, take_turns);
    join_all(5);
    SAY("%d turns", turn);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 30000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    int64_t start = now_ms();
    pthread_mutex_lock(&mutex);
    SAY("timedwait: %s", strerrorname_np(pthread_cond_timedwait(&condition, &mutex, &until)));
    pthread_mutex_unlock(&mutex);
    CHECK(now_ms() - start >= 20);
    clock_gettime(CLOCK_MONOTONIC, &until);
    SAY("clockwait in the past: %s", strerrorname_np((pthread_mutex_lock(&mutex), pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &until))));
    pthread_mutex_unlock(&mutex);
}

static void *try_lock(void *unused) {
    (void)unused;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    SAY("trylock: %s", strerrorname_np(pthread_mutex_trylock(&mutex)));
    SAY("timedlock: %s", strerrorname_np(pthread_mutex_timedlock(&mutex, &now)));
    return NULL;
}

static void *die_with_it(void *robust) {
    pthread_mutex_lock(robust);
    return NULL;
}

static void kinds_of_mutex(void) {
    section("kinds of mutex");
    pthread_mutex_lock(&mutex);
    start_all(1, try_lock);
    join_all(1);
    pthread_mutex_unlock(&mutex);
    pthread_mutexattr_t kind;
    pthread_mutex_t m;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&m, &kind);
    pthread_mutex_lock(&m);
    SAY("locked twice: %s", strerrorname_np(pthread_mutex_lock(&m)));
    pthread_mutex_unlock(&m);
    SAY("unlocked twice: %s", strerrorname_np(pthread_mutex_unlock(&m)));
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_NORMAL);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&m, &kind);
    pthread_t thread;
    pthread_create(&thread, NULL, die_with_it, &m);
    pthread_join(thread, NULL);
    SAY("owner died: %s", strerrorname_np(pthread_mutex_lock(&m)));
    SAY("made consistent: %d", pthread_mutex_consistent(&m));
    SAY("unlocked: %d", pthread_mutex_unlock(&m));
}

static pthread_barrier_t barrier;
static sem_t semaphore;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static int shared[2], torn;

static void *meet(void *argument) {
    long serial = 0;
    for (int i = 0; i < 50; i++) serial += pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD;
    for (int i = 0; i < 100; i++) {
        if ((long)argument == 0) {
            pthread_rwlock_wrlock(&rwlock);
            shared[0]++, sched_yield(), shared[1]++;
        } else {
            pthread_rwlock_rdlock(&rwlock);
            if (shared[0] != shared[1]) torn++;
        }
        pthread_rwlock_unlock(&rwlock);
    }
    sem_post(&semaphore);
    return (void *)serial;
}

static void others(void) {
    section("barriers, read-write locks, semaphores");
    pthread_barrier_init(&barrier, NULL, 8);
    sem_init(&semaphore, 0, 0);
    CALL(sem_trywait(&semaphore));
    start_all(8, meet);
    for (int i = 0; i < 8; i++) sem_wait(&semaphore);
    SAY("one leader in each of %ld rounds; torn %d, written %d", join_all(8), torn, shared[0]);
    struct timespec past = {1, 0};
    CALL(sem_timedwait(&semaphore, &past));
}

static void cleaned(void *what) { SAY("  cleanup of %s", (const char *)what); }

static void *wait_forever(void *unused) {
    (void)unused;
    pthread_cleanup_push(cleaned, "a cancelled thread");
    for (;;) pause();
    pthread_cleanup_pop(0);
    return NULL;
}

static pthread_key_t key;
static void *leave(void *unused) {
    (void)unused;
    pthread_setspecific(key, "a thread's own value");
    pthread_exit((void *)5L);
}

static void *quick(void *unused) { return __sync_fetch_and_add(&counter, 1), unused; }

static void endings(void) {
    section("cancelled, exited, detached");
    start_all(1, wait_forever);
    int cancelled = pthread_cancel(threads[0]);
    void *result;
    pthread_join(threads[0], &result);
    SAY("cancel: %d", cancelled);
    CHECK(result == PTHREAD_CANCELED);
    pthread_key_create(&key, cleaned);
    start_all(1, leave);
    SAY("exited with %ld", join_all(1));
    counter = 0;
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&detached, 64 << 10);
    for (int i = 0; i < 500; i++) {
        pthread_t thread;
        while (pthread_create(&thread, &detached, quick, NULL) != 0) sleep_ms(1);
    }
    for (int i = 0; i < 10000 && __sync_fetch_and_add(&counter, 0) < 500; i++) sleep_ms(1);
    SAY("%ld detached threads have run", counter);
}

int main(void) {
    many();
    conditions();
    kinds_of_mutex();
    others();
    endings();
}
