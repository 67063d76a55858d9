// Answers what must differ between clones of one machine: "name=value" pairs in one line.
#include "server.h"

#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>

static int device;
static char *wiped, *late;
static uint64_t ballast[1 << 20]; // large enough for chunks to be kept unpacked, and mapped

static long long ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void reply(const char *line, char *out, size_t size) {
    if (strstr(line, "late")) { // nothing before has looked at that page
        snprintf(out, size, "late=%d ballast=%d\n", late[0], ballast[1 << 19] != 0);
        return;
    }
    uint64_t fresh = 0, read_one = 0;
    if (getrandom(&fresh, sizeof fresh, 0) != sizeof fresh) fresh = 0;
    if (read(device, &read_one, sizeof read_one) != sizeof read_one) read_one = 0;
    uint64_t at_start[2];
    memcpy(at_start, (void *)getauxval(AT_RANDOM), sizeof at_start);
    snprintf(out, size, "pid=%d getrandom=%lx urandom=%lx at_random=%lx wiped=%d realtime=%lld monotonic=%lld\n",
             getpid(), (unsigned long)fresh, (unsigned long)read_one, (unsigned long)at_start[0],
             wiped[0], ns(CLOCK_REALTIME), ns(CLOCK_MONOTONIC));
    wiped[0] = 7;
}

int main(int argc, char **argv) {
    wiped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(wiped, 4096, MADV_WIPEONFORK);
    wiped[0] = 1;  // must be 0 in every clone
    for (size_t i = 0; i < sizeof ballast / sizeof *ballast; i++) ballast[i] = (i + 1) * 0x9e3779b97f4a7c15;
    late = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(late, 4096, MADV_WIPEONFORK);
    late[0] = 1;
    device = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    uint64_t before;  // a library that keeps a seed would have one by now
    if (getrandom(&before, sizeof before, 0) < 0) return 1;
    serve(listen_on(argc > 1 ? atoi(argv[1]) : 8080), reply);
}
