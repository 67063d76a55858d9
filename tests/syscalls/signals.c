// Signals that a program sends to itself: actions, masks, order, queues, jumps out of handlers.
#include "transcript.h"

#include <setjmp.h>
#include <sys/time.h>
#include <ucontext.h>

static volatile int depth, raised, calls;

static void count(int signal) { SAY("  handler of %s", sigabbrev_np(signal)), calls++; }

static void nested(int signal) {
    depth++;
    SAY("  %s at depth %d", sigabbrev_np(signal), depth);
    if (raised++ < 3) raise(signal == SIGUSR1 ? SIGUSR2 : SIGUSR1);
    SAY("  %s back at depth %d", sigabbrev_np(signal), depth);
    depth--;
}

static void on(int signal, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    MUST(sigaction(signal, &action, NULL));
}

static sigset_t set_of(int a, int b) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, a);
    sigaddset(&set, b);
    return set;
}

static void actions(void) {
    section("actions");
    struct sigaction old;
    on(SIGUSR1, count, SA_RESTART);
    CALL(sigaction(SIGUSR1, NULL, &old));
    CHECK(old.sa_handler == count && (old.sa_flags & SA_RESTART));
    CALL(raise(SIGUSR1));
    on(SIGUSR1, SIG_IGN, 0);
    CALL(raise(SIGUSR1));
    on(SIGUSR1, count, SA_RESETHAND);
    CALL(raise(SIGUSR1));
    sigaction(SIGUSR1, NULL, &old);
    CHECK(old.sa_handler == SIG_DFL);
    CALL(raise(SIGCHLD));
    CALL(raise(SIGURG));
    CALL(sigaction(SIGKILL, &old, NULL));
    CALL(sigaction(SIGSTOP, &old, NULL));
    CALL(sigaction(0, NULL, &old));
    CALL(sigaction(65, NULL, &old));
    CALL(syscall(SYS_rt_sigaction, SIGUSR1, NULL, NULL, 4L));
    CALL(kill(getpid(), 0));
    CALL(kill(getpid(), 65));
    CALL(kill(getpid(), -1));
    CALL(kill(0x3ffffff, 0));
    on(SIGUSR1, count, 0);
    CALL(kill(getpid(), SIGUSR1));
    CALL(syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR1));
    CALL(syscall(SYS_tgkill, getpid(), 0x3ffffff, SIGUSR1));
    CALL(syscall(SYS_tkill, syscall(SYS_gettid), SIGUSR1));
}

static void masks(void) {
    section("masks");
    sigset_t set = set_of(SIGUSR1, SIGUSR2), old, pending;
    struct sigaction action = {.sa_handler = count, .sa_mask = set};
    MUST(sigaction(SIGUSR1, &action, NULL));
    MUST(sigaction(SIGUSR2, &action, NULL));
    CALL(sigprocmask(SIG_BLOCK, &set, &old));
    CHECK(!sigismember(&old, SIGUSR1));
    CALL(raise(SIGUSR2));
    CALL(raise(SIGUSR1));
    CALL(raise(SIGUSR1));
    CALL(sigpending(&pending));
    CHECK(sigismember(&pending, SIGUSR1) && sigismember(&pending, SIGUSR2) && !sigismember(&pending, SIGTERM));
    CALL(sigprocmask(SIG_UNBLOCK, &set, NULL));
    CALL(sigpending(&pending));
    CHECK(!sigismember(&pending, SIGUSR1));
    CALL(sigprocmask(77, &set, NULL));
    CALL(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, NULL, 4L));
    sigfillset(&set);
    CALL(sigprocmask(SIG_SETMASK, &set, NULL));
    CALL(sigprocmask(SIG_SETMASK, NULL, &set));
    CHECK(!sigismember(&set, SIGKILL) && !sigismember(&set, SIGSTOP) && sigismember(&set, SIGTERM));
    CALL(sigprocmask(SIG_SETMASK, &old, NULL));
    on(SIGUSR1, SIG_IGN, 0);
    set = set_of(SIGUSR1, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGUSR1);
    CALL(sigpending(&pending));
    SAY("ignored and blocked: pending %d", sigismember(&pending, SIGUSR1));
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static void nesting(void) {
    section("nested");
    on(SIGUSR1, nested, 0);
    on(SIGUSR2, nested, SA_NODEFER);
    CALL(raise(SIGUSR1));
    raised = 0;
    CALL(raise(SIGUSR2));
    raised = 0;
    on(SIGUSR1, nested, SA_NODEFER);
    CALL(raise(SIGUSR1));
}

static void quiet(int signal) { (void)signal, calls++; }

static void timers(void) {
    section("interrupted by a timer");
    on(SIGALRM, quiet, 0);
    struct itimerval often = {.it_value = {0, 20000}, .it_interval = {0, 20000}}, now;  // one may come before the wait
    sigset_t none;
    sigemptyset(&none);
    MUST(setitimer(ITIMER_REAL, &often, NULL));
    CALL(sigsuspend(&none));
    CALL(pause());
    struct timespec long_time = {100, 0}, left;
    CALL(nanosleep(&long_time, &left));
    CHECK(left.tv_sec >= 50 && left.tv_sec < 100);
    int fds[2];
    char c = 0;
    MUST(pipe(fds));
    CALL(read(fds[0], &c, 1));
    CALL(poll(NULL, 0, 10000));
    CALL(select(0, NULL, NULL, NULL, NULL));
    CALL(clock_nanosleep(CLOCK_MONOTONIC, 0, &long_time, NULL) == EINTR);
    on(SIGALRM, SIG_IGN, 0);
    struct timespec short_time = {0, 100000000};
    CALL(nanosleep(&short_time, NULL));
    CALL(setitimer(ITIMER_REAL, &(struct itimerval){0}, &now));
    CHECK(now.it_interval.tv_usec == 20000 && now.it_value.tv_usec <= 20000);
    CALL(alarm(100));
    CALL(alarm(0));
    CALL(setitimer(99, &often, NULL));
    close(fds[0]);
    close(fds[1]);
}

static sigjmp_buf out;
static void jump(int signal) { siglongjmp(out, signal); }

static void jumping(void) {
    section("jumping out of a handler");
    on(SIGUSR1, jump, 0);
    for (volatile int i = 0; i < 3; i++) {
        int from = sigsetjmp(out, 1);
        if (!from) raise(SIGUSR1);
        SAY("round %d: came from %s", i, sigabbrev_np(from));
    }
}

static void skip(int signal, siginfo_t *info, void *context) {
    (void)signal;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    SAY("  trap %lld, code %d, error %lld", registers[REG_TRAPNO], info->si_code, registers[REG_ERR]);
    registers[REG_RIP] = registers[REG_R12];
    registers[REG_RAX] = 42;
}

static void faults(void) {
    section("faults whose handler changes the registers");
    struct sigaction action = {.sa_sigaction = skip, .sa_flags = SA_SIGINFO};
    int signals[] = {SIGSEGV, SIGFPE, SIGILL};
    for (int i = 0; i < 3; i++) MUST(sigaction(signals[i], &action, NULL));
    long a, d = 0;
    __asm__ volatile("lea 1f(%%rip), %%r12; mov $0, %%rax; mov (%%rax), %%rax; 1:" : "=a"(a)::"r12", "memory");
    SAY("bad read: rax %ld", a);
    __asm__ volatile("lea 1f(%%rip), %%r12; mov $0, %%rax; movb $1, 16(%%rax); 1:" : "=a"(a)::"r12", "memory");
    SAY("bad write: rax %ld", a);
    __asm__ volatile("lea 1f(%%rip), %%r12; xor %%ecx, %%ecx; idiv %%ecx; 1:" : "=a"(a), "+d"(d)::"rcx", "r12", "memory");
    SAY("division by zero: rax %ld", a);
    __asm__ volatile("lea 1f(%%rip), %%r12; ud2; 1:" : "=a"(a)::"r12", "memory");
    SAY("undefined instruction: rax %ld", a);
    __asm__ volatile("lea 1f(%%rip), %%r12; hlt; 1:" : "=a"(a)::"r12", "memory");
    SAY("privileged instruction: rax %ld", a);
    on(SIGTRAP, count, 0);
    __asm__ volatile("int3");
}

int main(void) {
    actions();
    masks();
    nesting();
    timers();
    jumping();
    faults();
    CHECK(calls > 0);
}
