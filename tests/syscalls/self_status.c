// What /proc/self/status, stat and statm say of the program itself.
#include "transcript.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

static char text[1 << 16];

static void load(const char *path) {
    FILE *file = fopen(path, "r");
    text[file ? fread(text, 1, sizeof text - 1, file) : 0] = 0;
    if (file) fclose(file);
}

static void show(const char *name) {
    load("/proc/self/status");
    char key[40];
    snprintf(key, sizeof key, "\n%s:", name);
    char *at = strstr(text, key);
    if (at) at[1 + strcspn(at + 1, "\n")] = 0;
    printf("%s\n", at ? at + 1 : "missing");
}

static long kib(const char *name) {
    load("/proc/self/status");
    const char *at = strstr(text, name);
    return at ? atol(at + strlen(name)) : -1;
}

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static void *waits(void *unused) {
    pthread_mutex_lock(&held);
    pthread_mutex_unlock(&held);
    return unused;
}

// The parent, group and session in both files are those that the calls return.
static void family(void) {
    int parent = -1, group = -1, session = -1;
    load("/proc/self/status");
    const char *at = strstr(text, "\nPPid:");
    CHECK(at && atoi(at + 6) == getppid());
    load("/proc/self/stat");
    const char *behind = strrchr(text, ')');
    sscanf(behind ? behind + 1 : "", " %*c %d %d %d", &parent, &group, &session);
    CHECK(parent == getppid());
    CHECK(group == getpgrp());
    CHECK(session == getsid(0));
}

static void ignore(int unused) { (void)unused; }

int main(void) {
    const pid_t before_group = getpgrp();
    umask(027);
    show("Umask");
    umask(0);
    show("Umask");
    show("Uid");
    show("Gid");
    show("Threads");
    pthread_t threads[3];
    pthread_mutex_lock(&held);
    for (int i = 0; i < 3; ++i) pthread_create(&threads[i], NULL, waits, NULL);
    show("Threads");
    pthread_mutex_unlock(&held);
    for (int i = 0; i < 3; ++i) pthread_join(threads[i], NULL);

    signal(SIGUSR1, ignore);
    signal(SIGUSR2, SIG_IGN);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGTERM);
    load("/proc/self/status");
    const char *caught = strstr(text, "SigCgt:");
    printf("SIGUSR1 is caught: %d\n", caught && (strtoull(caught + 7, NULL, 16) >> (SIGUSR1 - 1) & 1));
    const char *ignored = strstr(text, "SigIgn:");
    printf("SIGUSR2 is ignored: %d\n", ignored && (strtoull(ignored + 7, NULL, 16) >> (SIGUSR2 - 1) & 1));
    show("SigBlk");
    show("SigPnd");

    enum { kBytes = 40 << 20 };
    const long before = kib("VmRSS:"), mapped_before = kib("VmSize:");
    char *memory = mmap(NULL, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const long mapped = kib("VmSize:") - mapped_before;
    memset(memory, 1, kBytes);
    const long grown = kib("VmRSS:") - before;
    printf("VmSize grows with a mapping: %d, VmRSS with what is written: %d\n", mapped >= kBytes >> 10 && mapped < kBytes >> 9,
           before > 0 && grown >= (kBytes >> 10) - 1024 && grown < kBytes >> 9);
    munmap(memory, kBytes);
    const long left = kib("VmRSS:") - before;
    printf("and is given back: %d\n", left < kBytes >> 11);

    struct timespec now;
    do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    while (now.tv_sec == 0 && now.tv_nsec < 200000000);
    load("/proc/self/stat");
    unsigned long user = 0, system = 0;
    const char *behind = strrchr(text, ')');
    sscanf(behind ? behind + 1 : "", " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
    // Not a time of ours: on a busy host more of it passes than this program has asked for.
    const unsigned long before_ticks = now.tv_sec * 100ul + now.tv_nsec / 10000000;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    const unsigned long after_ticks = now.tv_sec * 100ul + now.tv_nsec / 10000000;
    printf("CPU time in ticks: %d\n", user + system + 2 >= before_ticks && user + system <= after_ticks + 2);

    section("parent, group and session");
    family();
    CHECK(setpgid(0, 0) == 0 && getpgrp() == getpid());
    family();
    CHECK(setpgid(0, before_group) == 0 && setsid() == getpid());
    family();
    return 0;
}
