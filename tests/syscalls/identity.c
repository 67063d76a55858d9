// What a program learns of itself and of the system: arguments, auxiliary vector, ids, limits, randomness.
#include "transcript.h"

#include <asm/prctl.h>
#include <elf.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

static void arguments(int argc, char **argv) {
    section("arguments and environment");
    for (int i = 1; i < argc; i++) SAY("argument %d: '%s'", i, argv[i]);
    CHECK(argv[argc] == NULL && argv[0] != NULL);
    const char *greeting = getenv("GREETING");
    SAY("GREETING is '%s'", greeting ? greeting : "(unset)");
    SAY("NOT_SET is %s", getenv("NOT_SET") ? "set" : "unset");
    CHECK(strcmp((const char *)getauxval(AT_EXECFN), argv[0]) == 0);
    char exe[4096], resolved[4096];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n < 0 ? 0 : n] = 0;
    CHECK(realpath(argv[0], resolved) && strcmp(exe, resolved) == 0);
    CHECK(((uintptr_t)__builtin_frame_address(0) & 15) == 0);
}

static void auxiliary(void) {
    section("auxiliary vector");
    CHECK(getauxval(AT_PAGESZ) == 4096 && sysconf(_SC_PAGESIZE) == 4096);
    CHECK(getauxval(AT_SECURE) == 0);
    CHECK(getauxval(AT_CLKTCK) == 100);
    CHECK(getauxval(AT_UID) == getuid() && getauxval(AT_EGID) == getegid());
    const unsigned char *random = (const unsigned char *)getauxval(AT_RANDOM);
    int zeros = 0;
    for (int i = 0; i < 16; i++) zeros += random[i] == 0;
    CHECK(zeros < 8);
    CHECK(getauxval(AT_PHNUM) > 3 && getauxval(AT_PHENT) == sizeof(Elf64_Phdr) && getauxval(AT_PHDR) != 0);
    CHECK(getauxval(AT_ENTRY) != 0);
    CHECK(strcmp((const char *)getauxval(AT_PLATFORM), "x86_64") == 0);
}

static void ids(void) {
    section("ids");
    CHECK(getpid() > 0 && getppid() >= 0);
    CHECK(syscall(SYS_gettid) == getpid());
    CHECK(getpid() == (int)syscall(SYS_getpid));
    CHECK(getuid() == geteuid() && getgid() == getegid());
    CHECK(getpgrp() > 0 && getsid(0) >= 0);
    uid_t r, e, s;
    CALL(getresuid(&r, &e, &s));
    CHECK(r == e && e == s);
    umask(022);
    CALL(umask(077));
    CALL(umask(022));
    CALL(prctl(PR_SET_NAME, "a-long-name-for-a-program"));
    char name[17] = "";
    CALL(prctl(PR_GET_NAME, name));
    SAY("'%s'", name);
    CALL(prctl(PR_GET_DUMPABLE));
    CALL(prctl(99999));
    CALL(kill(getpid(), 0));
}

static void system_facts(void) {
    section("the system");
    struct utsname name;
    CALL(uname(&name));
    SAY("%s on %s", name.sysname, name.machine);
    CHECK(name.release[0] >= '4' && name.release[0] <= '9');
    struct sysinfo info;
    CALL(sysinfo(&info));
    CHECK(info.totalram > 0 && info.mem_unit > 0 && info.uptime > 0);
    cpu_set_t set;
    CALL(sched_getaffinity(0, sizeof set, &set));
    CHECK(CPU_COUNT(&set) >= 1 && sysconf(_SC_NPROCESSORS_ONLN) >= 1);
    CALL(syscall(SYS_sched_getaffinity, 0, 1L, &set));
    CALL(sched_yield());
    struct rlimit limit;
    CALL(getrlimit(RLIMIT_STACK, &limit));
    CHECK(limit.rlim_cur >= 1 << 20);
    CALL(getrlimit(RLIMIT_NOFILE, &limit));
    CHECK(limit.rlim_cur >= 64);
    CALL(getpriority(PRIO_PROCESS, 0));
    unsigned cpu = 999, node = 999;
    CALL(syscall(SYS_getcpu, &cpu, &node, NULL));
    CHECK(cpu < 512 && node < 64);
    CALL(syscall(1000));
    CALL(syscall(-1));
}

static void randomness(void) {
    section("randomness");
    unsigned char a[32] = {0}, b[32] = {0}, c[32] = {0};
    CALL(getrandom(a, 32, 0));
    CALL(getrandom(b, 32, GRND_NONBLOCK));
    CHECK(memcmp(a, b, 32) != 0);
    CALL(getrandom(a, 32, 0x777));
    CALL(getrandom(a, 0, 0));
    int fd = MUST(open("/dev/urandom", O_RDONLY | O_CLOEXEC));
    CALL(read(fd, c, 32));
    CHECK(memcmp(b, c, 32) != 0);
    CALL(close(fd));
}

static void devices(void) {
    section("devices");
    char zeros[8] = "1234567";
    int fd = CALL(open("/dev/null", O_RDWR));
    CALL(write(fd, "gone", 4));
    CALL(read(fd, zeros, 8));
    CALL(close(fd));
    fd = CALL(open("/dev/zero", O_RDONLY));
    CALL(read(fd, zeros, 8));
    CHECK(memcmp(zeros, "\0\0\0\0\0\0\0\0", 8) == 0);
    CALL(close(fd));
    fd = CALL(open("/proc/self/maps", O_RDONLY));
    char text[4096];
    CHECK(read(fd, text, sizeof text) > 50 && strchr(text, '-'));
    CALL(close(fd));
    fd = CALL(open("/proc/self/status", O_RDONLY));
    CHECK(read(fd, text, sizeof text) > 50);
    CALL(close(fd));
    struct stat st;
    CALL(stat("/dev/null", &st));
    CHECK(S_ISCHR(st.st_mode));
}

static void segments(void) {
    section("segment bases");
    unsigned long fs = 0, gs = 0;
    CALL(syscall(SYS_arch_prctl, ARCH_GET_FS, &fs));
    CHECK(fs == *(unsigned long *)__builtin_thread_pointer());
    CALL(syscall(SYS_arch_prctl, ARCH_SET_GS, 0x1234567));
    CALL(syscall(SYS_arch_prctl, ARCH_GET_GS, &gs));
    CHECK(gs == 0x1234567);
    CALL(syscall(SYS_arch_prctl, ARCH_SET_GS, 1ul << 63));
    CALL(syscall(SYS_arch_prctl, ARCH_SET_GS, 0));
    CALL(syscall(SYS_arch_prctl, 0x7777, 0));
}

int main(int argc, char **argv) {
    arguments(argc, argv);
    auxiliary();
    ids();
    system_facts();
    randomness();
    devices();
    segments();
}
