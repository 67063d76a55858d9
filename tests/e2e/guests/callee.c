// A program whose functions the tests of the library call (tests/e2e/library).
//   callee              ready
//   callee pauses       waits for a signal, and is never ready
//   callee exits        ends before it is ready
//   callee never        computes for ever
//   callee ticks        ready, with a timer whose signal comes every 10 ms
//   callee threads      ready, with a thread that computes for ever
//   callee works        ready, with a thread that computes for 50 ms
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "include/tinykvm/guest.h"

int counter = 100;
volatile sig_atomic_t ticks;
volatile unsigned long spun;

int count(void) { return ++counter; }
long six(long a, long b, long c, long d, long e, long f) { return a + 10 * b + 100 * c + 1000 * d + 10000 * e + 100000 * f; }
int8_t negate8(int8_t v) { return (int8_t)-v; }
uint32_t negate32(uint32_t v) { return -v; }
int64_t negate64(int64_t v) { return -v; }
_Bool is_odd(int v) { return v & 1; }
double eight(double a, double b, double c, double d, double e, double f, double g, double h) {
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h;
}
double mixed(int a, double b, long c, float d) { return a * b + (double)c * d; }
float halved(float v) { return v / 2; }
unsigned long length(const char *text) { return strlen(text); }
uint64_t sum(const uint32_t *values, unsigned long n) {
    uint64_t s = 0;
    for (unsigned long i = 0; i < n; ++i)
        s += values[i];
    return s;
}
void fill(unsigned char *out, unsigned long n, int with) { memset(out, with, n); }
// Whether it was all zeros before.
_Bool fill_zeros(unsigned char *out, unsigned long n) {
    _Bool zero = 1;
    for (unsigned long i = 0; i < n; ++i)
        zero = zero && out[i] == 0;
    memset(out, 1, n);
    return zero;
}
void twice(uint16_t *values, unsigned long n) {
    for (unsigned long i = 0; i < n; ++i)
        values[i] = (uint16_t)(2 * values[i]);
}
_Bool aligned(const void *p) { return (uintptr_t)p % 16 == 0 && (uintptr_t)__builtin_frame_address(0) % 16 == 0; }
const char *own_text(void) { return "text of the program"; }
int *address_of_counter(void) { return &counter; }

void touch(volatile char *at) { *at = 1; }
void put(volatile uint64_t *at, uint64_t value) { *at = value; }
int divide(int a, int b) { return a / b; }
void give_up(void) { abort(); }
void leave(int status) { exit(status); }
void leave_thread(void) { pthread_exit(NULL); }
void spin(void) {
    for (;;)
        ++spun;
}
void wait_for_nothing(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    pthread_mutex_lock(&lock);
}
unsigned long nap(int ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    return (unsigned long)nanosleep(&t, NULL);
}
// `at` is the end of the stack in what guest kernel and host share; the state is 8 bytes before.
void put_and_nap(volatile uint64_t *at, uint64_t value, int state) {
    at[0] = value;
    *(volatile uint32_t *)(at - 1) = (uint32_t)state;
    nap(1000000);
}
int deeper(int n) {
    volatile char room[4096];
    memset((char *)room, n, sizeof room);
    return n > 0 ? deeper(n + 1) + room[n % 4096] : 0;
}
unsigned long eat(unsigned long mib) {
    char *p = mmap(NULL, mib << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return 0;
    for (unsigned long i = 0; i < mib << 20; i += 4096)
        p[i] = 1;
    return mib;
}
void read_port(void) { __asm__ volatile("inl %%dx, %%eax" ::"d"(0x5a1) : "eax"); }
int unmap_it(char *out, unsigned long n) { return munmap((void *)((uintptr_t)out & ~4095ul), n); }
long ready_again(void) { return tinykvm_ready(); }

uint64_t random_bits(void) {
    uint64_t bits = 0;
    if (getrandom(&bits, sizeof bits, 0) != sizeof bits)
        abort();
    return bits;
}
uint64_t start_bits(void) {
    uint64_t bits;
    memcpy(&bits, (const void *)getauxval(AT_RANDOM), sizeof bits);
    return bits;
}
long process(void) { return getpid(); }

int open_file(const char *path) {
    const int fd = open(path, O_RDONLY);
    return fd < 0 ? -errno : fd;
}
int write_file(const char *path, const char *text) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0)
        return -errno;
    const ssize_t n = write(fd, text, strlen(text));
    close(fd);
    return (int)n;
}
int say(const char *text) {
    fputs(text, stdout);
    return fflush(stdout);
}

long ask(unsigned number, long a, long b, long c, long d, long e) { return tinykvm_call_host(number, a, b, c, d, e); }
// The host reads and writes this.
int exchange(unsigned number) {
    char text[64] = "from the program";
    tinykvm_call_host(number, (long)text, sizeof text, 0, 0, 0);
    return strcmp(text, "from the host") == 0;
}

int ticks_seen(void) { return ticks; }
static void *add_to_counter(void *by) {
    counter += (int)(intptr_t)by;
    return NULL;
}
int in_thread(int by) {
    pthread_t thread;
    pthread_create(&thread, NULL, add_to_counter, (void *)(intptr_t)by);
    pthread_join(thread, NULL);
    return counter;
}
unsigned long spun_so_far(void) { return spun; }

static void on_tick(int signal) {
    (void)signal;
    ++ticks;
}
static void *spin_for_ever(void *unused) {
    (void)unused;
    spin();
    return NULL;
}
static void *work_and_count(void *unused) {
    struct timespec begin, now;
    (void)unused;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - begin.tv_sec) * 1000000000L + now.tv_nsec - begin.tv_nsec < 50000000L);
    counter = 500;
    return NULL;
}

__attribute__((noinline)) void started(void) { __asm__ volatile(""); }

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    pthread_t thread;
    counter = 200;
    started();
    if (strcmp(what, "pauses") == 0) {
        pause();
    } else if (strcmp(what, "exits") == 0) {
        return 7;
    } else if (strcmp(what, "never") == 0) {
        spin();
    } else if (strcmp(what, "ticks") == 0) {
        struct sigaction action = {.sa_handler = on_tick};
        sigaction(SIGALRM, &action, NULL);
        setitimer(ITIMER_REAL, &(struct itimerval){{0, 10000}, {0, 10000}}, NULL);
    } else if (strcmp(what, "threads") == 0) {
        pthread_create(&thread, NULL, spin_for_ever, NULL);
    } else if (strcmp(what, "works") == 0) {
        pthread_create(&thread, NULL, work_and_count, NULL);
    }
    const long ready = tinykvm_ready();
    printf("tinykvm_ready: %ld\n", ready);
    return 3;
}
