// The futex calls as such, thread ids, signals to other threads, threads that never call the kernel.
#include "transcript.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>

static uint32_t word, other, go, ready;

static long futex(uint32_t *at, int operation, uint32_t value, const void *timeout, uint32_t *at2, uint32_t value3) {
    return syscall(SYS_futex, at, operation, value, timeout, at2, value3);
}

static void *waiter(void *result) {
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    *(long *)result = futex(&word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    return NULL;
}

// Wakes (or requeues) until as many were as should, for a waiter may be on its way to its wait.
static long until(long wanted, int operation, uint32_t value, uintptr_t limit) {
    long total = 0;
    for (int i = 0; i < 10000 && total < wanted; i++) {
        total += MUST(futex(&word, operation, value, (void *)limit, &other, 0));
        if (total < wanted) sleep_ms(1);
    }
    return total;
}

static void simple(void) {
    section("one thread");
    struct timespec soon = {0, 20000000}, wrong = {0, 1000000000}, past = {1, 0};
    word = 1;
    CALL(futex(&word, FUTEX_WAIT, 0, NULL, NULL, 0));
    int64_t start = now_ms();
    CALL(futex(&word, FUTEX_WAIT, 1, &soon, NULL, 0));
    CALL(futex(&word, FUTEX_WAIT_PRIVATE, 1, &soon, NULL, 0));
    CHECK(now_ms() - start >= 38);
    CALL(futex(&word, FUTEX_WAIT, 1, &wrong, NULL, 0));
    CALL(futex(&word, FUTEX_WAIT_BITSET, 1, &past, NULL, FUTEX_BITSET_MATCH_ANY));
    CALL(futex(&word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 1, &past, NULL, FUTEX_BITSET_MATCH_ANY));
    CALL(futex(&word, FUTEX_WAIT_BITSET, 1, &past, NULL, 0));
    CALL(futex(&word, FUTEX_WAKE, 1, NULL, NULL, 0));
    CALL(futex(&word, FUTEX_WAKE_BITSET, 1, NULL, NULL, 0));
    CALL(futex((uint32_t *)((char *)&word + 1), FUTEX_WAKE, 1, NULL, NULL, 0));
    CALL(futex(NULL, FUTEX_WAIT, 0, NULL, NULL, 0));
    CALL(futex(&word, 99, 0, NULL, NULL, 0));
    CALL(futex(&word, FUTEX_CMP_REQUEUE, 1, (void *)1, &other, 0));
    word = 0;
}

static void several(void) {
    section("several threads");
    pthread_t threads[6];
    long results[6];
    for (int i = 0; i < 6; i++) results[i] = 99, pthread_create(&threads[i], NULL, waiter, &results[i]);
    while (__atomic_load_n(&ready, __ATOMIC_SEQ_CST) < 6) sched_yield();
    SAY("woken one by one: %ld", until(2, FUTEX_WAKE_PRIVATE, 1, 0));
    SAY("requeued: %ld", until(3, FUTEX_CMP_REQUEUE_PRIVATE, 0, 3));
    CALL(futex(&other, FUTEX_WAKE_PRIVATE, 2, NULL, NULL, 0));
    CALL(futex(&other, FUTEX_WAKE_PRIVATE, 5, NULL, NULL, 0));
    CALL(futex(&other, FUTEX_WAKE_PRIVATE, 5, NULL, NULL, 0));
    SAY("the last: %ld", until(1, FUTEX_WAKE_PRIVATE, 100, 0));
    long sum = 0;
    for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL), sum += results[i];
    SAY("results add up to %ld", sum);
}

static void *shared_waiter(void *result) {
    *(long *)result = futex(&word, FUTEX_WAIT, 0, NULL, NULL, 0);
    return NULL;
}

// A private wake does not reach who waits without FUTEX_PRIVATE_FLAG.
static void kinds(void) {
    section("shared and private");
    pthread_t thread;
    long result = 99;
    pthread_create(&thread, NULL, shared_waiter, &result);
    SAY("it waits, and is requeued: %ld", until(1, FUTEX_CMP_REQUEUE, 0, 1));
    CALL(futex(&other, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0));
    CALL(futex(&other, FUTEX_WAKE, 1, NULL, NULL, 0));
    pthread_join(thread, NULL);
    CHECK(result == 0);
}

static volatile sig_atomic_t poked, target_tid;
static volatile int stop;

static void poke(int signal) {
    (void)signal;
    poked += syscall(SYS_gettid) == target_tid;
}

// Never makes a system call while it spins.
static void *spin(void *unused) {
    target_tid = (int)syscall(SYS_gettid);
    __atomic_store_n(&go, 1, __ATOMIC_SEQ_CST);
    while (!stop) {
    }
    return unused;
}

static void spinning(void) {
    section("a thread that only computes, and signals to it");
    struct sigaction action = {.sa_handler = poke};
    MUST(sigaction(SIGUSR1, &action, NULL));
    pthread_t thread;
    pthread_create(&thread, NULL, spin, NULL);
    while (!__atomic_load_n(&go, __ATOMIC_SEQ_CST)) {
    }
    CHECK(target_tid != getpid() && syscall(SYS_gettid) == getpid());
    for (int i = 1; i <= 3; i++) {
        pthread_kill(thread, SIGUSR1);
        while (poked < i) {
        }
    }
    SAY("poked %d times", (int)poked);
    stop = 1;
    pthread_join(thread, NULL);
}

static int fds[2];
static volatile ssize_t got;

static void *reader(void *unused) {
    char c = 0;
    __atomic_store_n(&go, 2, __ATOMIC_SEQ_CST);
    errno = 0;
    ssize_t n = read(fds[0], &c, 1);
    got = n == 1 ? c : -errno;
    return unused;
}

static void interrupted(int flags) {
    struct sigaction action = {.sa_handler = poke, .sa_flags = flags};
    MUST(sigaction(SIGUSR1, &action, NULL));
    pthread_t thread;
    __atomic_store_n(&go, 0, __ATOMIC_SEQ_CST);
    got = 0;
    pthread_create(&thread, NULL, reader, NULL);
    while (__atomic_load_n(&go, __ATOMIC_SEQ_CST) != 2) sched_yield();
    for (int i = 0; (flags & SA_RESTART ? i < 10 : !got) && i < 10000; i++) pthread_kill(thread, SIGUSR1), sleep_ms(5);
    if (flags & SA_RESTART) MUST(write(fds[1], "r", 1));
    pthread_join(thread, NULL);
    SAY("%s: read gives %s", flags ? "SA_RESTART" : "without", got == 'r' ? "r" : strerrorname_np((int)-got));
}

int main(void) {
    simple();
    several();
    kinds();
    spinning();
    section("a blocked read, interrupted");
    MUST(pipe(fds));
    interrupted(SA_RESTART);
    interrupted(0);
}
